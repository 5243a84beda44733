"""A linear classifier over the stored vectors of all examples, for relations with many examples (needs SciPy)."""

from __future__ import annotations

import numpy as np

RIDGE = 0.02  # weight of the squared weights, against the mean loss of a relation
LEAST_COUNT = 10.0  # examples per relation (harmonic mean) from which on the classifier counts
COUNT_AS_ONE = 8.0  # examples per relation at which its log-odds count as much as the tempered log-likelihoods
MOST_STEPS = 40  # of the optimiser


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
