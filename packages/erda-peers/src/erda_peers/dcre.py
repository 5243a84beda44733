"""DCRE: descriptive continual relation extraction (Nguyen et al., AAAI 2025), with templates as descriptions.

The publication has a language model write several descriptions of a relation. Here the name and the description of the
dataset are written into several templates; the patterns of a description are further ones. Training, prototypes and
memory are CPL's; the loss and the score are DCRE's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from erda.encoders.trainable import embed
from erda.fields import Fraction, Weight
from erda.learning.losses import cosine_similarity, cross_entropy
from erda.methods.posterior import TEMPLATES, sentences_of
from erda.types import Example, Relation, Task
from erda_peers.contrastive_losses import supervised_contrastive
from erda_peers.cpl import Cpl

RANK_OFFSET = 60.0  # of reciprocal rank fusion
TIE = 1e-5  # weight of the similarities themselves, which order relations with equal ranks


@dataclass(eq=False)
class Dcre(Cpl):
    """Contrast with descriptions; reciprocal ranks by prototype and by description. Scores are fused ranks.

    The loss of a sentence x with description d of its relation is L_sc + L_st + L_hm + L_mi: a supervised contrast
    and a soft-margin triplet between sentences, a hard-margin contrast of d with the sentences, and InfoNCE between x
    and the descriptions.
    """

    _: KW_ONLY
    n_descriptions: Annotated[int, Field(ge=1, le=len(TEMPLATES))] = 2  # templates per relation, besides its patterns
    soft_margin_weight: Weight = 1.0  # of L_st
    hard_margin_weight: Weight = 1.0  # of L_hm
    information_weight: Weight = 1.0  # of L_mi
    prototype_share: Fraction = 0.5  # alpha: of the prototype's rank; the rest is the description's
    centred: bool = False  # subtract the mean description and the mean prototype first; not in the publication

    name: ClassVar[str] = "dcre"
    uses_names: ClassVar[bool] = True

    def _loss(self, batch: Sequence[Example], prototypes: Tensor) -> Tensor:
        vectors, targets = F.normalize(self.encoder.encode(batch), dim=-1), self._targets(batch)
        present = targets.unique()
        described = self._describe([self.relations[int(row)] for row in present])
        similarities = vectors @ vectors.t()
        same = targets[:, None] == targets
        others = ~torch.eye(len(batch), dtype=torch.bool, device=same.device)
        columns = torch.searchsorted(present, targets)
        to_descriptions = cosine_similarity(vectors, described)
        return (
            supervised_contrastive(similarities, same, temperature=self.temperature, counted=others)
            + self.soft_margin_weight * soft_margin_triplet(1 - similarities, same & others, ~same)
            + self.hard_margin_weight * hard_margin(to_descriptions[:, columns].t(), same, margin=self.margin)
            + self.information_weight * cross_entropy(to_descriptions, columns, temperature=self.temperature)
        )

    def _describe(self, relations: Iterable[Relation]) -> Tensor:
        """Mean unit vector of each relation's descriptions, with gradients: [n_relations, dim]."""
        each = [sentences_of(relation) for relation in relations]
        each = [own[: self.n_descriptions] + own[len(TEMPLATES) :] for own in each]
        vectors = F.normalize(self.encoder.encode_blanked([one for own in each for one in own]), dim=-1)
        return torch.stack([own.mean(dim=0) for own in vectors.split([len(own) for own in each])])

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        super()._learn(task, generator)
        with torch.no_grad():
            self._keep("description", self._describe(self.relations))

    def _prepare(self) -> None:
        super()._prepare()
        self.descriptions = self._stack("description")

    def _similarities(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Cosines with prototypes and with descriptions: each [n_examples, n_relations]."""
        vectors = F.normalize(embed(self.encoder, examples), dim=-1)
        prototypes, descriptions = F.normalize(self.prototypes, dim=-1), F.normalize(self.descriptions, dim=-1)
        if not self.centred or len(prototypes) < 2:
            return vectors @ prototypes.t(), vectors @ descriptions.t()
        centre = prototypes.mean(dim=0)
        return (
            cosine_similarity(vectors - centre, prototypes - centre),
            cosine_similarity(vectors - centre, descriptions - descriptions.mean(dim=0)),
        )

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        """Reciprocal rank fusion: alpha / (c + rank by prototype) + (1 - alpha) / (c + rank by description)."""
        near = torch.stack(self._similarities(examples))
        shares = torch.tensor([self.prototype_share, 1 - self.prototype_share], device=near.device)
        fused = RANK_OFFSET / (RANK_OFFSET + 1 + ranks(near)) + TIE * near
        return (shares[:, None, None] * fused).sum(dim=0)


def ranks(similarities: Tensor) -> Tensor:
    """Rank of each column in its row, from 0 for the largest: [..., m] -> [..., m]."""
    return similarities.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1).to(similarities.dtype)


def soft_margin_triplet(distances: Tensor, same: Tensor, other: Tensor) -> Tensor:
    """log(1 + exp(farthest positive - nearest negative)), averaged over anchors with both; 0 without any.

    `distances` [n, m]; `same` and `other` [n, m] mark positives and negatives.
    """
    both = same.any(dim=1) & other.any(dim=1)
    if not both.any():
        return distances.sum() * 0
    farthest = distances.masked_fill(~same, float("-inf")).amax(dim=1)[both]
    nearest = distances.masked_fill(~other, float("inf")).amin(dim=1)[both]
    return F.softplus(farthest - nearest).mean()


def hard_margin(similarities: Tensor, same: Tensor, *, margin: float) -> Tensor:
    """Pull hard positives to a description and push hard negatives away, averaged over descriptions.

    `similarities` [n, m] of descriptions and sentences. A positive is hard if it is farther than the nearest negative,
    a negative if it is nearer than the farthest positive. Hard positives cost (1 - s)^2, hard negatives
    max(0, margin - (1 - s))^2.
    """
    distances = 1 - similarities
    nearest = distances.masked_fill(same, float("inf")).amin(dim=1, keepdim=True)
    farthest = distances.masked_fill(~same, float("-inf")).amax(dim=1, keepdim=True)
    pulled = distances.square() * (same & (distances > nearest))
    pushed = (margin - distances).clamp(min=0).square() * (~same & (distances < farthest))
    return (pulled + pushed).sum(dim=1).mean()
