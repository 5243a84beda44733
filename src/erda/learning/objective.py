"""ERDA's loss of a batch: the losses of `losses.py` weighted and added up (Eq. 4 and 7).

On the CPU value and gradient are computed in one compiled pass: a step of five sentences is so small that PyTorch would
spend more time on these thirty operations and their gradients than on the encoder. Tests hold one against the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erda.learning.losses import contrastive, cosine_similarity, cross_entropy, multi_margin, pairwise_margin

_COMPILED = find_spec("numba") is not None


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights, margins and the temperature of the four losses, under the names of ERDA's settings."""

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

        `vectors` [n + n_negatives, dim] are the batch's and then, exemplar by exemplar, those of the hard negatives of
        the rows `exemplars`; `prototypes` [n_relations, dim] carry no gradient; `targets` [n] are the true relations.
        """
        if vectors.device.type == "cpu" and vectors.dtype == prototypes.dtype == torch.float32 and _COMPILED:
            loss: Tensor = _Compiled.apply(self, vectors, prototypes, targets, exemplars)
            return loss
        return self.by_torch(vectors, prototypes, targets, exemplars)

    def by_torch(self, vectors: Tensor, prototypes: Tensor, targets: Tensor, exemplars: list[int]) -> Tensor:
        """The same out of PyTorch's operations, for any device."""
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


class _Compiled(torch.autograd.Function):
    """`Objective` on the CPU, with the gradient found beside the value."""

    @staticmethod
    def forward(ctx: Any, o: Objective, vectors: Tensor, *others: Any) -> Tensor:
        from erda.learning.objective_kernel import loss_and_gradient

        prototypes, targets, exemplars = others
        loss, gradient = loss_and_gradient(
            vectors.numpy(),
            prototypes.numpy(),
            targets.numpy(),
            np.array(exemplars, dtype=np.int64),
            o.temperature,
            (o.cross_entropy_weight, o.multi_margin_weight, o.pairwise_margin_weight, o.contrastive_weight),
            (o.multi_margin, o.pairwise_margin, o.contrastive_margin),
            o.average_multi_margin,
        )
        ctx.gradient = torch.from_numpy(gradient)
        return torch.tensor(loss, dtype=vectors.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, ctx.gradient * grads[0], None, None, None
