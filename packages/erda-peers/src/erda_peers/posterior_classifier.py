"""Posterior with a linear classifier over the stored vectors of all examples, for relations with many examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from erda.methods.posterior import Posterior
from erda.types import Example

RIDGE = 0.02  # weight of the squared weights, against the mean loss of a relation
LEAST_COUNT = 10.0  # examples per relation (harmonic mean) from which on the classifier counts
COUNT_AS_ONE = 8.0  # examples per relation at which its log-odds count as much as the tempered log-likelihoods
MOST_STEPS = 40  # of the optimiser


@dataclass(eq=False)
class PosteriorClassifier(Posterior):
    """Posterior that adds a classifier's log-odds to its scores, from ten examples per relation on (needs SciPy)."""

    name: ClassVar[str] = "posterior-classifier"

    def _prepare(self) -> None:
        super()._prepare()
        self._table: np.ndarray | None = None  # fitted lazily, at the first prediction

    def _scores(self, examples: Sequence[Example]) -> np.ndarray:
        vectors = self.vectors(examples)
        found = self.fitted.scores(vectors)
        weight = classifier_weight(self._stacked("count")) if self.score == "two-covariance" else 0.0
        if not weight:
            return found
        if self._table is None:
            self._table = weight * self._log_odds()
        z = (vectors.astype(np.float64) - self.fitted.centre) @ self.fitted.basis
        both = found + z @ self._table[:-1] + self._table[-1]
        return both + _log_total(found) - _log_total(both)  # the evidence against an unseen relation stays the same

    def _log_odds(self) -> np.ndarray:
        """Fit a classifier to the examples and, as `name_weights` more of them, the names; every relation counts once.

        Directions count by the share of their variance that lies between relations. The table is linear
        in z: [dim + 1, n_relations].
        """
        counts, of_names = self._stacked("count"), self.name_weights()
        each = [self.taught_vectors(relation) - self.fitted.centre for relation in self.index]
        owners = np.repeat(np.arange(len(each)), [len(one) for one in each])
        total = counts + of_names
        shares = np.concatenate([1 / total[owners], of_names / total])
        spread = self.fitted.spread
        scale = np.sqrt(spread / (spread + 1))
        vectors = np.concatenate([*each, self.centred_names()]) @ self.fitted.basis * scale
        targets = np.concatenate([owners, np.arange(len(each))])
        found = fit_classifier(vectors, targets, shares, len(each))
        return np.concatenate([scale[:, None] * found[:-1], found[-1:]])


def _log_total(scores: np.ndarray) -> np.ndarray:
    """Logarithm of the sum of exponentials of each row: [n, m] -> [n, 1]."""
    highest = scores.max(axis=1, keepdims=True)
    return np.asarray(highest + np.log(np.exp(scores - highest).sum(axis=1, keepdims=True)))


def classifier_weight(counts: np.ndarray) -> float:
    """Weight of the classifier's log-odds, from the harmonic mean of the `counts` [n_relations] of examples."""
    n = len(counts) / float((1 / counts).sum()) if len(counts) and counts.min() > 0 else 0.0
    return n / COUNT_AS_ONE if n >= LEAST_COUNT else 0.0


def fit_classifier(vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray, n_relations: int) -> np.ndarray:
    """Multinomial logistic regression: [dim + 1, n_relations], the last row is the intercept.

    Minimise sum_i w_i CE(x_i W + b, y_i) / sum_i w_i + RIDGE / 2 |W|^2 over `vectors` [n, dim], `targets` [n] and
    `weights` [n].
    """
    from scipy.optimize import minimize

    features = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1)
    shares = weights / weights.sum()
    rows = np.arange(len(targets))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table = flat.reshape(-1, n_relations)
        logits = features @ table
        logits -= logits.max(axis=1, keepdims=True)
        total = np.log(np.exp(logits).sum(axis=1))
        value = float(shares @ (total - logits[rows, targets])) + RIDGE / 2 * float(np.square(table[:-1]).sum())
        wrong = np.exp(logits - total[:, None])
        wrong[rows, targets] -= 1
        gradient = features.T @ (shares[:, None] * wrong)
        gradient[:-1] += RIDGE * table[:-1]
        return value, gradient.ravel()

    start = np.zeros(features.shape[1] * n_relations)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS})
    return np.asarray(found.x.reshape(-1, n_relations))
