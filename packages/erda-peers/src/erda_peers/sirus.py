"""SIRUS: discriminative vectors in clusters of similar relations (Le et al., NAACL 2025), from its abstract.

Descriptions are clustered again before every epoch; the losses emphasise negatives of the same cluster. The published
text that was available names these parts but not their formulas, so the weights below are ours. Training, prototypes
and memory are CPL's; descriptions are DCRE's templates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from erda.fields import Weight
from erda.learning.losses import cross_entropy
from erda.types import Example
from erda_peers.contrastive_losses import supervised_contrastive
from erda_peers.dcre import Dcre


@dataclass(eq=False)
class Sirus(Dcre):
    """Contrast with sentences and descriptions, harder within clusters of similar relations. Scores are cosines."""

    _: KW_ONLY
    similar_weight: Weight = 1.0  # extra weight of a negative of the same cluster

    name: ClassVar[str] = "sirus"
    uses_names: ClassVar[bool] = True

    def _contrast(self, examples: Sequence[Example], prototypes: Tensor, generator: torch.Generator) -> None:
        with torch.no_grad():
            self.clusters = first_neighbours(self._describe(self.relations))
        super()._contrast(examples, prototypes, generator)

    def _loss(self, batch: Sequence[Example], prototypes: Tensor) -> Tensor:
        """Supervised contrast of sentences, plus InfoNCE of sentences and the descriptions of the batch's relations."""
        vectors, targets = F.normalize(self.encoder.encode(batch), dim=-1), self._targets(batch)
        present = targets.unique()
        described = F.normalize(self._describe([self.relations[int(row)] for row in present]), dim=-1)
        same = targets[:, None] == targets
        others = ~torch.eye(len(batch), dtype=torch.bool, device=same.device)
        to_sentences = self._harder(vectors @ vectors.t(), targets, targets)
        to_descriptions = self._harder(vectors @ described.t(), targets, present)
        return supervised_contrastive(
            to_sentences, same, temperature=self.temperature, counted=others
        ) + self.information_weight * cross_entropy(
            to_descriptions, torch.searchsorted(present, targets), temperature=self.temperature
        )

    def _harder(self, similarities: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Count negatives of the same cluster 1 + `similar_weight` times in the softmax: [n, m] -> [n, m]."""
        similar = (self.clusters[rows][:, None] == self.clusters[columns]) & (rows[:, None] != columns)
        return similarities + self.temperature * math.log(1 + self.similar_weight) * similar

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        by_prototype, by_description = self._similarities(examples)
        return self.prototype_share * by_prototype + (1 - self.prototype_share) * by_description


def first_neighbours(vectors: Tensor) -> Tensor:
    """Cluster vectors by linking each to its nearest other one: [n, dim] -> cluster of each, [n] int64."""
    unit = F.normalize(vectors, dim=-1)
    similarities = (unit @ unit.t()).fill_diagonal_(float("-inf"))
    clusters = torch.arange(len(vectors), device=vectors.device)
    for row, nearest in enumerate(similarities.argmax(dim=1).tolist()):
        clusters[clusters == clusters[row]] = clusters[nearest].item()
    return clusters
