"""Losses of contrastive methods and of distillation, as pure functions of similarities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


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
