"""Keys under which sentences, entities and entity pairs are equal, and the ordered pairs of a sentence's entities.

Keys ignore case and spacing: FewRel writes "people 's republic of china" where Wikipedia writes "People's Republic of
China". An entity matches by its id, by its name in the sentence and, if its id carries a title ("enwiki:Paris
(mythology)"), by that title without the brackets. So a FewRel pair with Wikidata ids finds the sentences of a corpus
whose ids are page titles.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

from erda.types import Entity, Example, Span

_BRACKETS = re.compile(r"\s*\([^()]*\)$")


@dataclass(frozen=True, slots=True)
class EntityPair:
    """An ordered pair of entities; ids are optional."""

    head: str
    tail: str
    head_id: str | None = None
    tail_id: str | None = None

    @classmethod
    def of(cls, example: Example) -> EntityPair:
        """Return the entity pair of an example."""
        return cls(example.head.name, example.tail.name, example.head.id, example.tail.id)


def plain(text: str) -> str:
    """Normalise text: lower case, no spaces, composed Unicode.

    >>> plain("People 's Republic of China")
    "people'srepublicofchina"
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return "".join(text.split()).lower()


def sentence_key(text: str) -> int:
    """Return the 64-bit key of a sentence, given as raw text or as tokens joined by spaces."""
    return int.from_bytes(hashlib.blake2b(plain(text).encode(), digest_size=8).digest(), "little")


def entity_key(name: str, entity_id: str | None) -> str:
    """Return the key by which the corpus is sorted: the id, or the normalised name of an entity without id."""
    return entity_id or plain(name)


def lookup_keys(pair: EntityPair) -> set[int]:
    """Return all 64-bit keys of a pair: one of both ids, and one for each combination of names and titles.

    Two pairs match when they share a key. Pairs are ordered: (a, b) and (b, a) share no key.
    """
    heads, tails = _names(pair.head, pair.head_id), _names(pair.tail, pair.tail_id)
    keys = {_pair_key("name", head, tail) for head in heads for tail in tails}
    if pair.head_id and pair.tail_id:
        keys.add(_pair_key("id", pair.head_id, pair.tail_id))
    return keys


@lru_cache(maxsize=1 << 15)
def _names(name: str, entity_id: str | None) -> Sequence[str]:
    surface = plain(name)
    if not entity_id or ":" not in entity_id:
        return (surface,)
    title = entity_id.partition(":")[2]
    title = plain(_BRACKETS.sub("", title) if title.endswith(")") else title)
    return (surface,) if title in ("", surface) else (surface, title)


def _pair_key(kind: str, head: str, tail: str) -> int:
    key = hashlib.blake2b(f"{kind}\x1f{head}\x1f{tail}".encode(), digest_size=8)
    return int.from_bytes(key.digest(), "little")


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
class SentencePairs:
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
) -> SentencePairs:
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
    for (i, left), (j, right) in permutations(enumerate(kept), 2):
        gap = max(left.span.start, right.span.start) - min(left.span.end, right.span.end)
        if gap >= 0 and (is_asked is None or is_asked(tokens, left, right)):
            found.append((gap, min(i, j), max(i, j), i > j, left, right))
    found.sort(key=lambda pair: pair[:4])
    chosen = found if most is None else found[:most]
    words = tuple(tokens)
    examples = tuple(Example(words, head, tail, source=source) for *_, head, tail in chosen)
    return SentencePairs(examples, len(kept), len(found) - len(chosen))
