"""Losses of the paper and of other methods as pure functions, and their inputs: relation embeddings, hard negatives.

`similarities` [n_examples, n_relations] are large for close pairs; `targets` [n_examples] are the columns of the true
relations. Each loss is a mean over the batch, as in the released code; the paper writes sums (docs/method.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from erda.types import Entity, Example, Relation, Span


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


def multi_margin(similarities: Tensor, targets: Tensor, *, margin: float, average: bool = True) -> Tensor:
    """L_mm, Eq. 2: every wrong relation at least `margin` below the true one.

    Mean over the wrong relations, as in the released code; without `average` their sum, as in the paper.
    """
    true = similarities.gather(1, targets[:, None])
    hinges = (margin - true + similarities).clamp(min=0)
    wrong = torch.ones_like(hinges).scatter(1, targets[:, None], 0.0)
    total = (hinges * wrong).sum(dim=1)
    return (total / max(similarities.shape[1] - 1, 1) if average else total).mean()


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


# -- relation embeddings and hard negatives ----------------------------------------------------------------------------


def relation_embeddings(relations: Sequence[Relation], names: Tensor, exemplars: Mapping[str, Tensor]) -> Tensor:
    """r_i of the paper: the mean of a relation's name and exemplars, all scaled to length 1, [n_relations, dim].

    `names` [n_relations, dim] are the embedded names, `exemplars[id]` [n_exemplars, dim] the embedded exemplars.
    """
    rows = []
    for relation, name in zip(relations, F.normalize(names, dim=-1), strict=True):
        vectors = exemplars.get(relation.id)
        rows.append(name if vectors is None else torch.cat([name[None], F.normalize(vectors, dim=-1)]).mean(dim=0))
    return torch.stack(rows)


def swap_entity(example: Example, donor: Example, role: Literal["head", "tail"]) -> Example:
    """Replace the head (or tail) mention of `example` with the donor's, and adjust both spans."""
    old: Entity = getattr(example, role)
    new: Entity = getattr(donor, role)
    words = donor.tokens[new.span.start : new.span.end]
    tokens = example.tokens[: old.span.start] + words + example.tokens[old.span.end :]
    shift = len(words) - (old.span.end - old.span.start)
    swapped = Entity(new.name, Span(old.span.start, old.span.start + len(words)), new.id, new.type)
    other = example.tail if role == "head" else example.head
    if other.span.start >= old.span.end:
        other = replace(other, span=Span(other.span.start + shift, other.span.end + shift))
    head, tail = (swapped, other) if role == "head" else (other, swapped)
    return Example(tokens, head, tail, example.relation, f"{example.id}~{role}~{donor.id}", example.source)


def hard_negatives(example: Example, others: Sequence[Example], generator: torch.Generator) -> list[Example]:
    """Swap the head, then the tail, with a random donor each: two negatives, or none without other examples."""
    donors = [other for other in others if other is not example]
    if not donors:
        return []
    drawn = torch.randint(len(donors), (2,), generator=generator).tolist()
    return [swap_entity(example, donors[drawn[0]], "head"), swap_entity(example, donors[drawn[1]], "tail")]
