"""Choose the constants that turn open-text evidence into log odds, by the labels of the asked documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from erda.methods.open_head import COUNT_WEIGHT, USUAL_COUNT, relative_counts
from erda.methods.openness import FREQUENCY, LINE

THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One relation of one draw: what the fit reads."""

    relation: str
    log_odds: np.ndarray  # [n], with the present constants
    distinctness: np.ndarray  # [2]
    n_examples: int
    holds: np.ndarray  # [n], 1 or 0

    @property
    def inputs(self) -> np.ndarray:
        """Evidence, a constant, the distinctness of the examples and their relative number: [n, 5]."""
        count = float(relative_counts(np.array(self.n_examples)))
        evidence = (self.log_odds - LINE[1] - self.distinctness @ FREQUENCY - COUNT_WEIGHT * count) / LINE[0]
        return np.column_stack([evidence, np.tile([1, *self.distinctness, count], (len(evidence), 1))])


def fitted_constants(units: Sequence[Unit], *, n_steps: int = 30) -> np.ndarray:
    """Logistic regression of right and wrong by Newton steps: a weight of each of the `inputs`."""
    inputs, holds = (np.concatenate([getattr(one, name) for one in units]) for name in ("inputs", "holds"))
    weights = np.array([*LINE, *FREQUENCY, COUNT_WEIGHT])
    for _ in range(n_steps):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -50, 50)))
        curve = inputs.T @ (inputs * (chance * (1 - chance))[:, None]) + 1e-6 * np.eye(len(weights))
        step = np.linalg.solve(curve, inputs.T @ (chance - holds))
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-6:
            break
    return weights


def at_thresholds(units: Sequence[Unit], weights: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Precision and recall of all answers from each threshold on, in percent, with the usual number of examples."""
    units = [one for one in units if one.n_examples == USUAL_COUNT]
    chance = 1 / (1 + np.exp(-np.concatenate([one.inputs @ weights for one in units])))
    holds = np.concatenate([one.holds for one in units])
    for threshold in THRESHOLDS:
        answered = chance >= threshold
        yield threshold, 100 * float(holds[answered].mean()), 100 * float(holds[answered].sum() / holds.sum())


def report(units: Sequence[Unit]) -> Iterator[str]:
    """Lines to print: the constants for `erda.methods.openness`, and what thresholds give with them."""
    weights = fitted_constants(units)
    slope, intercept, types, vectors, count = np.round(weights, 2)
    yield f"LINE, FREQUENCY = ({slope}, {intercept}), ({types}, {vectors}); COUNT_WEIGHT = {count}  # erda.methods"
    yield "least confidence: precision / recall with these constants; with those of the other half, mean of six halves"
    crossed = np.mean([list(at_thresholds(*one)) for one in _cross_fitted(units)], axis=0)
    for (threshold, *own), (_, *other) in zip(at_thresholds(units, weights), crossed, strict=True):
        yield f"{threshold:5.2f}: {own[0]:.1f} / {own[1]:.1f}; {other[0]:.1f} / {other[1]:.1f}"


def _cross_fitted(units: Sequence[Unit], *, n_splits: int = 3) -> Iterator[tuple[list[Unit], np.ndarray]]:
    """Random halves of the relations, each with the constants of the other half."""
    relations = sorted({one.relation for one in units})
    for seed in range(n_splits):
        first = set(np.random.default_rng(seed).permutation(relations)[::2].tolist())
        halves = [[one for one in units if (one.relation in first) == is_first] for is_first in (True, False)]
        yield halves[0], fitted_constants(halves[1])
        yield halves[1], fitted_constants(halves[0])
