"""The paper's four losses, and those of other methods, as pure functions of similarities and targets.

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


def supervised_contrastive(
    similarities: Tensor, same: Tensor, *, temperature: float, counted: Tensor | None = None
) -> Tensor:
    """-1/|P(i)| sum over p in P(i) of log(exp(s_ip / t) / sum_a exp(s_ia / t)), the mean over anchors i with a P(i).

    `same` [n, m] says which of the columns are of the anchor's relation, P(i); `counted` [n, m] which are compared at
    all (an anchor is not compared with itself). 0 where no anchor has a positive.
    """
    logits = similarities / temperature
    if counted is not None:
        same, logits = same & counted, logits.masked_fill(~counted, float("-inf"))
    n_same = same.sum(dim=1)
    anchors = n_same > 0
    if not anchors.any():
        return similarities.sum() * 0
    logits, same = logits[anchors], same[anchors]
    shares = F.log_softmax(logits, dim=1).masked_fill(~same, 0.0)
    return -(shares.sum(dim=1) / n_same[anchors]).mean()


def relaxed(similarities: Tensor, same: Tensor, *, margin: float) -> Tensor:
    """Similarities that weigh more the further they are from where they should be: [n, m] -> [n, m].

    Of the same relation a (s - (1 - m)) with a = max(0, 1 + m - s), of another b (s - m) with b = max(0, s + m).
    Neither a nor b carries a gradient: hard pairs pull harder, and those beyond the margin hardly.
    """
    now = similarities.detach()
    alike = (1 + margin - now).clamp(min=0) * (similarities - (1 - margin))
    others = (now + margin).clamp(min=0) * (similarities - margin)
    return torch.where(same, alike, others)


def distillation(scores: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """t^2 KL(softmax(teacher / t) || softmax(scores / t)), the mean over rows; both [n, m]. 0 without a row."""
    if not scores.numel():
        return scores.sum()
    expected = F.softmax(teacher / temperature, dim=1)
    found = F.log_softmax(scores / temperature, dim=1)
    return temperature**2 * F.kl_div(found, expected, reduction="batchmean")
