"""Posterior that also learns from the questions of a call, without their answers (transductive).

Expectation maximisation over the two-covariance model: each round estimates which relations the questions belong to,
adds them to the examples with a small weight, and fits the model again. Scores therefore depend on all questions of a
call. Compare it with transductive methods only.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from erda.fields import Count, Fraction, Positive
from erda.methods.posterior import Posterior
from erda.types import Example

SINKHORN_STEPS = 30
SMALLEST = 1e-3  # smaller shares of a question are dropped


@dataclass(eq=False)
class PosteriorTransductive(Posterior):
    """Posterior over a frozen encoder, fitted to examples and questions."""

    _: KW_ONLY
    rounds: Count = 6
    question_weight: Fraction = 0.3  # of a question, where an example has 1
    sharpness: Positive = 4.0  # factor of scores before the softmax that shares a question among relations
    min_share: Fraction = 0.5  # questions without a relation above this share are left out
    balanced: bool = False  # assume that all relations are equally frequent among the questions

    name: ClassVar[str] = "posterior-transductive"

    def _scores(self, examples: Sequence[Example]) -> np.ndarray:
        vectors, fitted = self.vectors(examples), self.fitted
        for _ in range(self.rounds):
            grown = copy(self)
            grown.rows = self.rows | grown_rows(
                self.rows, tuple(self.index), vectors, self._shares(fitted.scores(vectors))
            )
            fitted = grown._fit()
        return fitted.scores(vectors)

    def _shares(self, scores: np.ndarray) -> np.ndarray:
        """Weight of each question for each relation: [n_questions, n_relations]."""
        shares = shares_of(scores * self.sharpness, balanced=self.balanced)
        shares *= shares.max(axis=1, keepdims=True) > self.min_share
        return np.where(shares > SMALLEST, self.question_weight * shares, 0.0)


def shares_of(logits: np.ndarray, *, balanced: bool = False) -> np.ndarray:
    """Softmax of each row; with `balanced`, scaled by Sinkhorn's algorithm until all columns have equal sums."""
    logits = logits - logits.max(axis=1, keepdims=True)
    for _ in range(SINKHORN_STEPS if balanced else 0):
        logits = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        logits = logits - np.log(np.exp(logits).sum(axis=0) + 1e-300)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def grown_rows(
    rows: dict[str, dict[str, np.ndarray]], relations: Sequence[str], vectors: np.ndarray, weights: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """Count, mean and scatter factor of each relation, with questions [n, dim] added by `weights` [n, n_relations]."""
    counts, means, factors = {}, {}, {}
    for relation, weight in zip(relations, weights.T, strict=True):
        (used,) = np.nonzero(weight)
        n, added, own = float(rows["count"][relation]), weight[used], vectors[used].astype(np.float64)
        before = rows["mean"][relation].astype(np.float64)
        total = n + float(added.sum())
        mean = (n * before + added @ own) / max(total, 1e-9)
        scatter = [rows["factor"][relation], np.sqrt(added)[:, None] * (own - mean), n**0.5 * (before - mean)[None]]
        counts[relation], means[relation] = np.array(total), mean
        factors[relation] = np.concatenate(scatter)
    return {"count": counts, "mean": means, "factor": factors}
