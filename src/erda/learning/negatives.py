"""Hard negatives: an exemplar with one entity replaced by the corresponding entity of another example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from erda.types import Entity, Example, Span

Role = Literal["head", "tail"]


def swap_entity(example: Example, donor: Example, role: Role) -> Example:
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
