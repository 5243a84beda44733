"""Losses of the paper and of other methods, as pure functions of similarities and targets.

`similarities` [n_examples, n_relations] are large for close pairs; `targets` [n_examples] are the columns of the true
relations. Each loss is a mean over the batch, as in the released code; the paper writes sums (docs/method.md).
"""

from __future__ import annotations

from dataclasses import dataclass

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

    Sum over the wrong relations, as in the paper; with `average` their mean, as in the released code.
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

    `true` [n] are the similarities of exemplars to their relation, `negatives` [n, n_negatives] the similarities of
    their hard negatives to the same relation.
    """
    return (margin - true + negatives.sum(dim=1)).clamp(min=0).mean()


def supervised_contrastive(
    similarities: Tensor, same: Tensor, *, temperature: float, counted: Tensor | None = None
) -> Tensor:
    """-1/|P(i)| sum over p in P(i) of log(exp(s_ip / t) / sum_a exp(s_ia / t)), averaged over anchors with positives.

    `same` [n, m] marks the positives P(i), the columns of the anchor's relation; `counted` [n, m] marks the columns a
    to compare with (an anchor is not compared with itself). 0 if no anchor has a positive.
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
    """Similarities weighted by their distance from the optimum (circle loss): [n, m] -> [n, m].

    Same relation: a (s - (1 - m)) with a = max(0, 1 + m - s). Other relations: b (s - m) with b = max(0, s + m).
    The weights a and b carry no gradient. Hard pairs have a larger gradient than easy ones.
    """
    now = similarities.detach()
    alike = (1 + margin - now).clamp(min=0) * (similarities - (1 - margin))
    others = (now + margin).clamp(min=0) * (similarities - margin)
    return torch.where(same, alike, others)


def distillation(scores: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """t^2 KL(softmax(teacher / t) || softmax(scores / t)), averaged over rows; both [n, m]. 0 without rows."""
    if not scores.numel():
        return scores.sum()
    expected = F.softmax(teacher / temperature, dim=1)
    found = F.log_softmax(scores / temperature, dim=1)
    return temperature**2 * F.kl_div(found, expected, reduction="batchmean")


@dataclass(frozen=True, slots=True)
class Objective:
    """ERDA's loss: the weighted sum of four losses (Eq. 4 and 7); the fields have the names of ERDA's settings."""

    temperature: float
    cross_entropy_weight: float
    multi_margin_weight: float
    pairwise_margin_weight: float
    contrastive_weight: float
    multi_margin: float
    pairwise_margin: float
    contrastive_margin: float
    average_multi_margin: bool

    def __call__(self, vectors: Tensor, prototypes: Tensor, targets: Tensor, exemplars: list[int]) -> Tensor:
        """L_new of a batch, plus L_con of its exemplars.

        `vectors` [n + n_negatives, dim] are the batch, followed by the hard negatives of each row in `exemplars`.
        `prototypes` [n_relations, dim] carry no gradient. `targets` [n] are the columns of the true relations.
        """
        similarities = cosine_similarity(vectors, prototypes)
        known = similarities[: len(targets)]
        loss = self.cross_entropy_weight * cross_entropy(known, targets, temperature=self.temperature)
        if self.multi_margin_weight:
            loss = loss + self.multi_margin_weight * multi_margin(
                known, targets, margin=self.multi_margin, average=self.average_multi_margin
            )
        if self.pairwise_margin_weight:
            loss = loss + self.pairwise_margin_weight * pairwise_margin(known, targets, margin=self.pairwise_margin)
        if exemplars:
            columns = targets[exemplars]
            true = known[exemplars, columns]
            false = similarities[len(targets) :].view(len(exemplars), -1, similarities.shape[1])
            false = false.gather(2, columns[:, None, None].expand(-1, false.shape[1], 1)).squeeze(2)
            loss = loss + self.contrastive_weight * contrastive(true, false, margin=self.contrastive_margin)
        return loss
