"""The paper's four losses as pure functions of similarities and targets.

`similarities` [n_examples, n_relations] are large where close; `targets` [n_examples] are the true columns.
Each is a mean over the examples of its batch (as the released code reads the paper's sums; docs/method.md).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cosine_similarity(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """g(x, r) of the paper: [n, dim], [m, dim] -> [n, m]."""
    return F.normalize(vectors, dim=-1) @ F.normalize(prototypes, dim=-1).t()


def squared_distance(vectors: Tensor, references: Tensor) -> Tensor:
    """Squared Euclidean distances, never negative: [n, dim], [m, dim] -> [n, m]."""
    squares = vectors.square().sum(dim=1)[:, None] + references.square().sum(dim=1)
    return (squares - 2 * vectors @ references.t()).clamp(min=0)


def cross_entropy(similarities: Tensor, targets: Tensor, *, temperature: float = 1.0) -> Tensor:
    """L_ce, Eq. 1: softmax over the known relations."""
    return F.cross_entropy(similarities / temperature, targets)


def multi_margin(similarities: Tensor, targets: Tensor, *, margin: float, average: bool = False) -> Tensor:
    """L_mm, Eq. 2: every wrong relation at least `margin` below the true one.

    Summed over the wrong relations as in the paper, or divided by their number with `average` as in the released code.
    """
    true = similarities.gather(1, targets[:, None])
    hinges = (margin - true + similarities).clamp(min=0)
    wrong = torch.ones_like(hinges).scatter(1, targets[:, None], 0.0)
    total = (hinges * wrong).sum(dim=1)
    if average:
        total = total / max(similarities.shape[1] - 1, 1)
    return total.mean()


def pairwise_margin(similarities: Tensor, targets: Tensor, *, margin: float) -> Tensor:
    """L_pm, Eq. 3: the nearest wrong relation at least `margin` below the true one; 0 with one relation."""
    if similarities.shape[1] < 2:
        return similarities.sum() * 0
    true = similarities.gather(1, targets[:, None]).squeeze(1)
    nearest = similarities.scatter(1, targets[:, None], float("-inf")).amax(dim=1)
    return (margin - true + nearest).clamp(min=0).mean()


def contrastive(true: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """L_con, Eq. 6: one hinge over the sum of an exemplar's hard negatives.

    `true` [n] are similarities of exemplars with their relation, `negatives` [n, n_negatives] those of their hard
    negatives with the same relation.
    """
    return (margin - true + negatives.sum(dim=1)).clamp(min=0).mean()
