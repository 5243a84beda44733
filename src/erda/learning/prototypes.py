"""Relation embeddings: the mean of name and exemplars, or the name alone without exemplars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from erda.types import Relation


def relation_embeddings(
    relations: Sequence[Relation], names: Tensor, exemplars: Mapping[str, Tensor], *, unit: bool = False
) -> Tensor:
    """r_i of the paper: [n_relations, dim].

    `names` [n_relations, dim] are the embedded names, `exemplars[id]` [n_exemplars, dim] the embedded exemplars.
    `unit` first scales all vectors to length 1, so that names and sentences have equal weight.
    """
    if unit:
        names = F.normalize(names, dim=-1)
        exemplars = {relation: F.normalize(vectors, dim=-1) for relation, vectors in exemplars.items()}
    rows = []
    for relation, name in zip(relations, names, strict=True):
        vectors = exemplars.get(relation.id)
        rows.append(name if vectors is None else torch.cat([name[None], vectors]).mean(dim=0))
    return torch.stack(rows)
