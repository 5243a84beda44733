"""`objective.py` compiled with Numba: the loss of a batch and its gradient in one pass."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray
_TINY = np.float32(1e-12)

# sums may be taken in any order; what is no number stays so, since learning watches for it
_jit = numba.njit(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy", nogil=True, cache=True)


@_jit
def _dot(left: Array, right: Array) -> Any:
    total = np.float32(0)
    for k in range(len(left)):
        total += left[k] * right[k]
    return total


@_jit
def _unit(vectors: Array) -> tuple[Array, Array]:
    """Vectors of length 1, and the lengths they had."""
    units, lengths = np.empty_like(vectors), np.empty(len(vectors), dtype=np.float32)
    for i in range(len(vectors)):
        lengths[i] = max(np.sqrt(_dot(vectors[i], vectors[i])), _TINY)
        units[i] = vectors[i] / lengths[i]
    return units, lengths


@_jit
def _row(similarities: Array, true: int, temperature: float, weights: Any, margins: Any, pull: Array) -> float:
    """L_new of one example: its value; its gradient in `similarities` is added to `pull`. Both are [n_relations]."""
    ce, mm, pm = weights
    powers = np.exp((similarities - similarities.max()) / temperature)
    total = powers.sum()
    loss = -ce * np.log(powers[true] / total)
    pull += ce / temperature * powers / total
    pull[true] -= ce / temperature
    rival = -1
    for j in range(len(similarities)):
        if j == true:
            continue
        if rival < 0 or similarities[j] > similarities[rival]:
            rival = j
        hinge = margins[0] - similarities[true] + similarities[j]
        if hinge >= 0:
            loss += mm * hinge
            pull[j] += mm
            pull[true] -= mm
    if rival >= 0:
        hinge = margins[1] - similarities[true] + similarities[rival]
        if hinge >= 0:
            loss += pm * hinge
            pull[rival] += pm
            pull[true] -= pm
    return loss


@_jit
def loss_and_gradient(
    vectors: Array,
    prototypes: Array,
    targets: Array,
    exemplars: Array,
    temperature: float,
    weights: tuple[float, float, float, float],
    margins: tuple[float, float, float],
    average: bool,
) -> tuple[float, Array]:
    """The loss of a batch, and its gradient in `vectors`.

    weights: of L_ce, L_mm, L_pm and L_con; margins: m_1, m_2 and m_3; average: divide L_mm by the wrong relations.
    """
    n, n_relations = len(targets), len(prototypes)
    units, lengths = _unit(vectors)
    relations, _ = _unit(prototypes)
    similarities = np.empty((len(vectors), n_relations), dtype=np.float32)
    for i in range(len(vectors)):
        for j in range(n_relations):
            similarities[i, j] = _dot(units[i], relations[j])
    pull = np.zeros_like(similarities)
    wrong = max(n_relations - 1, 1) if average else 1
    shares = (weights[0] / n, weights[1] / n / wrong, weights[2] / n)
    loss = 0.0
    for i in range(n):
        loss += _row(similarities[i], targets[i], temperature, shares, margins, pull[i])
    for e in range(len(exemplars)):
        i, n_negatives = exemplars[e], (len(vectors) - n) // len(exemplars)
        negatives = slice(n + e * n_negatives, n + (e + 1) * n_negatives)
        hinge = margins[2] - similarities[i, targets[i]] + similarities[negatives, targets[i]].sum()
        if hinge >= 0:
            share = weights[3] / len(exemplars)
            loss += share * hinge
            pull[i, targets[i]] -= share
            pull[negatives, targets[i]] += share
    gradient = np.zeros_like(vectors)
    for i in range(len(vectors)):
        for j in range(n_relations):
            if pull[i, j] != 0:
                gradient[i] += pull[i, j] * relations[j]
        gradient[i] = (gradient[i] - _dot(gradient[i], units[i]) * units[i]) / lengths[i]
    return loss, gradient
