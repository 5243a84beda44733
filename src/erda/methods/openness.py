"""Fit the open-text head, which separates a relation from unlabelled pairs of entities (docs/open-text.md).

A sample of unlabelled pairs and the taught examples set the scale of the scores; the types of the examples are compared
with the types of the sample. The weights of these features come from `open_score.json`. Counterexamples correct the log
odds by a logistic regression over whitened vectors; taught examples have no bias there, because they were selected by
their label. Everything is a sum over examples, so order does not matter, and a forgotten relation leaves no trace.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from erda.encoders.contract import Unlabelled, unit_rows
from erda.methods.expected import Fitted
from erda.methods.open_head import FEATURES, OpenHead, Pairs, logistic, plain_type

SCORE = Path(__file__).with_name("open_score.json")  # of `tools/fit_open_score.py` and `tools/fit_competition.py`
TYPE_PRIOR = 0.5  # number of unlabelled pairs that are added to the types of the examples
BY_HAND = 20.0  # number of examples that types set by hand count for
N_SPREAD = 2_000  # pairs of the sample that scores are compared with
FEW_RELATIONS = 0.5  # a contrast is seen from (n - 1) / (n - 1 + this) of the mean of n relations; not fitted
MOST_JUDGED = 1_000  # examples and counterexamples in a regression


@dataclass(frozen=True, slots=True, eq=False)
class TaughtPairs:
    """What is known of a relation. Types that were set by hand replace those of the examples."""

    examples: Pairs
    name: np.ndarray  # [dim], vector of name and patterns minus that of a usual name; counts for one example
    counterexamples: Pairs
    types_by_hand: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # of head and tail
    n_patterns: int = 0
    judged: Sequence[int] = ()  # rows of `examples`; all others were taught


@cache
def fitted_score() -> dict[str, Any]:
    """Weights that were fitted on folds, and where they come from."""
    found: dict[str, Any] = json.loads(SCORE.read_text(encoding="utf-8"))
    return found


def weights_of(kind: str) -> np.ndarray:
    """Weights of `FEATURES` for pairs that are `marked`, or in `text`."""
    return np.array([fitted_score()[kind].get(name, 0.0) for name in FEATURES])


def fit_open_head(
    taught: Sequence[TaughtPairs], model: Fitted, unlabelled: Unlabelled, *, unrelated: Pairs | None = None
) -> OpenHead:
    """Fit the head of all relations. In pairs `unrelated`, none of them holds."""
    whitening = _whitening(unlabelled)
    sample = unit_rows((unlabelled.vectors[:N_SPREAD] - unlabelled.mean) @ whitening)
    own = [((one.examples.vectors - unlabelled.mean) @ whitening, one.name @ whitening) for one in taught]
    shift = -_common_part([examples for examples, _ in own])
    apart = [(examples + shift, name) for examples, name in own]
    means, contrasts = (unit_rows(np.stack([rows.sum(axis=0) + name for rows, name in some])) for some in (own, apart))
    usual = float(np.linalg.norm(unlabelled.variances * np.square(whitening).sum(axis=0)))  # a cosine of two pairs
    cosines, likelihoods = sample @ means.T, _sample_scores(model, unlabelled)
    level = np.stack([np.full(len(taught), likelihoods.mean()), cosines.mean(axis=0)])
    reach = max(_taught_score(taught, model, default=likelihoods.max()) - level[0, 0], likelihoods.std())
    head = OpenHead(
        level,
        np.maximum([np.full(len(taught), reach), cosines.std(axis=0)], 1e-9),
        unlabelled.mean,
        whitening,
        means.T,
        shift,
        contrasts.T / usual,
        np.array([[_own_level(*one, sample) for one in own], [_own_cosine(*one) / usual for one in apart]]),
        np.full(len(taught), _rivals([unit_rows(rows) for rows, _ in apart], contrasts) / usual),
        np.stack([_type_part(taught, unlabelled, side) for side in (0, 1)]),
        np.array([len(one.examples) + one.n_patterns for one in taught], dtype=np.float64),
        np.zeros((2, len(unlabelled.mean), len(taught))),
        np.zeros((2, len(taught))),
        np.array([fitted_score()["marked"]["share"] / usual_gap(model, unlabelled), *weights_of("marked")]),
        np.array([fitted_score()["competition"]["weight"], *weights_of("text")]),
        unlabelled.type_names,
    )
    against = [Pairs.joined([one.counterexamples, *([unrelated] if unrelated else [])]) for one in taught]
    bias = fitted_score()["judged"]["bias"] ** 0.5
    for i, (one, wrong) in enumerate(zip(taught, against, strict=True)):
        if len(wrong):
            pairs = Pairs.joined([one.examples[:MOST_JUDGED], wrong[:MOST_JUDGED]])
            holds, scores = np.arange(len(pairs)) < min(len(one.examples), MOST_JUDGED), model.scores(pairs.vectors)
            has_bias = ~holds | np.isin(np.arange(len(pairs)), one.judged)
            rows = np.hstack([(pairs.vectors - unlabelled.mean) @ whitening, bias * has_bias[:, None]])
            for in_text in (False, True):
                offsets = head.log_odds(scores, pairs, in_text=in_text)[:, i]
                row = correction(rows, np.where(holds, np.maximum(offsets, 0), offsets), holds.astype(float))
                weights = head.weights[int(in_text), :, i] = whitening @ row[:-1]
                head.constant[int(in_text), i] = bias * row[-1] - unlabelled.mean @ weights
    return OpenHead.from_arrays(head.arrays())  # rounded as in a file


@lru_cache(maxsize=1)  # by identity: judgements change counterexamples, not the model
def _sample_scores(model: Fitted, unlabelled: Unlabelled) -> np.ndarray:
    """Two-covariance scores of the sample: [n, n_relations]."""
    return model.scores(unlabelled.vectors[:N_SPREAD])


def usual_gap(model: Fitted, unlabelled: Unlabelled) -> float:
    """Mean deviation of a pair's two-covariance scores between relations, over the sample: the unit of shares."""
    return max(float(_sample_scores(model, unlabelled).std(axis=1).mean()), 1e-9)


def _taught_score(taught: Sequence[TaughtPairs], model: Fitted, *, default: float) -> float:
    """Mean two-covariance score of taught examples with their own relation, over relations that have examples."""
    own = [(i, one.examples.vectors[:MOST_JUDGED]) for i, one in enumerate(taught) if len(one.examples)]
    return float(np.mean([model.scores(vectors)[:, i].mean() for i, vectors in own])) if own else default


def _common_part(taught: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the relations' means, times (n - 1) / (n - 0.5): zero for a single relation. [dim]"""
    means = [own.mean(axis=0) for own in taught if len(own)]
    others = max(len(means) - 1, 0)
    return np.sum(means or taught[0], axis=0) / max(len(means), 1) * others / (others + FEW_RELATIONS)


def _rivals(taught: Sequence[np.ndarray], contrasts: np.ndarray) -> float:
    """Mean over taught examples of the best contrast with another relation; 0 with one relation."""
    if len(taught) < 2 or not any(map(len, taught)):
        return 0.0
    best = []
    for i, rows in enumerate(taught):
        found = rows @ contrasts.T
        found[:, i] = -np.inf
        best.append(found.max(axis=1))
    return float(np.concatenate(best).mean())


def _whitening(unlabelled: Unlabelled) -> np.ndarray:
    """Whiten by the covariance of unlabelled pairs plus a ridge, to a mean length of 1: [dim, dim]."""
    ridge = fitted_score()["judged"]["ridge"]
    deviations = np.sqrt(unlabelled.variances + ridge * unlabelled.variances.mean())
    length = float(np.sqrt((unlabelled.variances / deviations**2).sum()))
    return np.asarray(unlabelled.axes / (deviations * length))


def _type_part(taught: Sequence[TaughtPairs], unlabelled: Unlabelled, side: int) -> np.ndarray:
    """Log odds of each type of the head (side 0) or tail (1): [1 + n_types, n_relations]. Unknown is no evidence."""
    n_types = 1 + len(unlabelled.type_names)
    counted = np.bincount(unlabelled.types[:, side], minlength=n_types)[1:] + 1.0
    shares, found = counted / counted.sum(), np.zeros((n_types, len(taught)))
    for i, one in enumerate(taught):
        if one.types_by_hand[side]:
            known = {plain_type(name) for name in one.types_by_hand[side]}
            counts = np.array([0.0, *(name in known for name in unlabelled.type_names)])
            counts *= BY_HAND / max(counts.sum(), 1)
        else:
            counts = np.bincount(one.examples.types[:, side], minlength=n_types).astype(float)
            counts[0] = 0
            counts = counts @ unlabelled.smoothing
        odds = (counts[1:] + TYPE_PRIOR * shares) / (counts.sum() + TYPE_PRIOR) / shares
        found[1:, i] = np.log(odds)
    return found


def _own_cosine(own: np.ndarray, name: np.ndarray) -> float:
    """Mean cosine of each example with the others and the name; 0 without examples."""
    others = own.sum(axis=0) + name - own
    return float((unit_rows(own) * unit_rows(others)).sum(axis=1).mean()) if len(own) else 0.0


def _own_level(own: np.ndarray, name: np.ndarray, sample: np.ndarray) -> float:
    """Mean leave-one-out cosine of the examples, in deviations of the sample; 0 without examples."""
    if not len(own):
        return 0.0
    usual = sample @ unit_rows((own.sum(axis=0) + name - own).mean(axis=0, keepdims=True))[0]
    return float((_own_cosine(own, name) - usual.mean()) / max(usual.std(), 1e-9))


def correction(rows: np.ndarray, offsets: np.ndarray, holds: np.ndarray, *, n_steps: int = 50) -> np.ndarray:
    """Weights that correct the log odds `offsets` of pairs: logistic regression by Newton steps on the dual, [k]."""
    l2 = fitted_score()["judged"]["l2"]
    kernel, duals = rows @ rows.T, np.zeros(len(rows))

    def loss(duals: np.ndarray) -> float:
        shift = kernel @ duals
        logits = offsets + shift
        return float((np.logaddexp(0, logits) - holds * logits).sum() + l2 / 2 * duals @ shift)

    for _ in range(n_steps):
        shift = kernel @ duals
        chance = logistic(offsets + shift)
        curve = np.maximum(chance * (1 - chance), 1e-9)
        scaled = kernel * curve[:, None] + l2 * np.eye(len(rows))
        step = np.linalg.solve(scaled, curve * shift + holds - chance) - duals
        size, before = 1.0, loss(duals)
        while loss(duals + size * step) > before and size > 1e-4:
            size /= 2
        duals = duals + size * step
        if np.abs(size * step).max() < 1e-6:
            break
    return np.asarray(rows.T @ duals)
