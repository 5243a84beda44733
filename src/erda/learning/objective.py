"""ERDA's loss: the weighted sum of the losses in `losses.py` (Eq. 4 and 7)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from erda.learning.losses import contrastive, cosine_similarity, cross_entropy, multi_margin, pairwise_margin


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
