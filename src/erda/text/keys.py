"""What counts as the same: keys of sentences, entities and entity pairs.

Case and spacing never matter: FewRel writes "people 's republic of china" where Wikipedia writes
"People's Republic of China". An entity is known by its id, by its name in the sentence and, where its id carries a
title ("enwiki:Paris (mythology)"), by that title without what stands in brackets. So a pair of FewRel, whose ids are
Wikidata's, finds the sentences of a corpus whose ids are page titles.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from erda.types import Example

_BRACKETS = re.compile(r"\s*\([^()]*\)$")


@dataclass(frozen=True, slots=True)
class EntityPair:
    """Two entities to look for, in order; an id may be missing."""

    head: str
    tail: str
    head_id: str | None = None
    tail_id: str | None = None

    @classmethod
    def of(cls, example: Example) -> EntityPair:
        """The pair of an example."""
        return cls(example.head.name, example.tail.name, example.head.id, example.tail.id)


def plain(text: str) -> str:
    """Text without case, spacing and differences of Unicode composition.

    >>> plain("People 's Republic of China")
    "people'srepublicofchina"
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return "".join(text.split()).lower()


def sentence_key(text: str) -> int:
    """A 64-bit key of a sentence (its tokens joined by spaces, or the raw text: spacing does not matter)."""
    return int.from_bytes(hashlib.blake2b(plain(text).encode(), digest_size=8).digest(), "little")


def entity_key(name: str, entity_id: str | None) -> str:
    """What the corpus is sorted by: the id, or the plain name of an entity without one."""
    return entity_id or plain(name)


def lookup_keys(pair: EntityPair) -> set[int]:
    """Every 64-bit key under which a pair can be found: both ids, and each name or title of one with each of the other.

    Two pairs match when they share a key. The pair is ordered: (a, b) and (b, a) share none.
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
