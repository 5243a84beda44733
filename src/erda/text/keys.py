"""Keys under which sentences, entities and entity pairs are equal.

Keys ignore case and spacing: FewRel writes "people 's republic of china" where Wikipedia writes "People's Republic of
China". An entity matches by its id, by its name in the sentence and, if its id carries a title ("enwiki:Paris
(mythology)"), by that title without the brackets. So a FewRel pair with Wikidata ids finds the sentences of a corpus
whose ids are page titles.
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
