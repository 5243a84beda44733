"""Sentences with any number of entities, and their ordered pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from erda.text.keys import entity_key
from erda.types import Entity, Example, Span


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The tokens of a sentence and its entities. `offsets` are the characters of each token in the original text."""

    tokens: tuple[str, ...]
    entities: tuple[Entity, ...]
    offsets: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    def characters(self, span: Span) -> tuple[int, int]:
        """The characters of a span of tokens in the original text, the end excluded."""
        return self.offsets[span.start][0], self.offsets[span.end - 1][1]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Ordered pairs of the entities of a sentence, as examples without a relation."""

    examples: tuple[Example, ...]
    n_entities: int
    n_left_out: int  # number of pairs beyond the limit


def ordered_pairs(
    tokens: Sequence[str],
    entities: Sequence[Entity],
    *,
    most: int | None = None,
    source: str | None = None,
    is_asked: Callable[[Sequence[str], Entity, Entity], bool] | None = None,
) -> Pairs:
    """Return the ordered pairs of a sentence's entities that `is_asked` accepts, closest first, at most `most`.

    Repeated mentions of an entity count once, at the first; overlapping mentions form no pair.

    >>> ann, oslo = Entity("Ann", Span(0, 1)), Entity("Oslo", Span(2, 3))
    >>> [(pair.head.name, pair.tail.name) for pair in ordered_pairs(["Ann", "left", "Oslo"], [ann, oslo]).examples]
    [('Ann', 'Oslo'), ('Oslo', 'Ann')]
    """
    first: dict[str, Entity] = {}
    for entity in sorted(entities, key=lambda entity: (entity.span.start, -entity.span.end)):
        first.setdefault(entity_key(entity.name, entity.id), entity)
    kept = list(first.values())
    found = []
    for i, left in enumerate(kept):
        for j, right in enumerate(kept):
            apart = left.span.end <= right.span.start or right.span.end <= left.span.start
            if i != j and apart and (is_asked is None or is_asked(tokens, left, right)):
                gap = max(left.span.start, right.span.start) - min(left.span.end, right.span.end)
                found.append((gap, min(i, j), max(i, j), i > j, left, right))
    found.sort(key=lambda pair: pair[:4])
    chosen = found if most is None else found[:most]
    words = tuple(tokens)
    examples = tuple(Example(words, head, tail, source=source) for *_, head, tail in chosen)
    return Pairs(examples, len(kept), len(found) - len(chosen))
