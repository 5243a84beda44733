"""Relations with their sentence patterns, and names of entities: the TOML files that `atlas` is generated from.

A pattern is plain English with slots: `{head}` and `{tail}` once each, `{year}`, `{month}`, `{number}`, and for persons
words that follow their gender, written for a man: `{head.he}`, `{tail.His}`, `{tail.son}` (`atlas_sentences`). Each
pattern belongs to one purpose (`PURPOSES`) for good: it stands in the list of that name in its file.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from erda.types import Relation

DOMAINS = ("family", "careers", "lives", "arts", "organisations", "places", "sport", "science")
PURPOSES = ("train", "validation", "test", "corpus")
UNRELATED = "unrelated"
OTHER_FILES = ("names", "contexts", UNRELATED)

_TOKEN = re.compile(r"\w+(?:[-'](?!s\b)\w+)*|'s\b|[^\w\s]")
_SLOT = re.compile(r"\{([a-zA-Z.]+)\}")
# A first word after which an opening phrase ("According to the town archive, …") would read badly.
_NO_OPENING = {
    "After", "Although", "As", "At", "Before", "By", "During", "Every", "Few", "Foreign", "For", "From", "If", "In",
    "Like", "Nowhere", "Of", "On", "Once", "Only", "Originally", "Poor", "Since", "Skipping", "Then", "Through", "To",
    "Together", "Under", "Until", "When", "Where", "Wherever", "While", "Widowed", "With", "Without",
}  # fmt: skip
_LONGEST_WITH_CLOSING = 16  # tokens; longer patterns say enough


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sentence with slots, cut up once: `parts` are lists of tokens and names of slots in turn."""

    text: str
    parts: tuple[tuple[str, ...] | str, ...]
    opens: bool  # may follow an opening phrase
    closes: bool  # may be followed by a closing phrase


@dataclass(frozen=True, slots=True)
class RelationContent:
    """A relation, the types of its two arguments, and its patterns by purpose. `relation` None: no relation at all."""

    relation: Relation | None
    domain: str
    head: str
    tail: str
    patterns: Mapping[str, tuple[Pattern, ...]]

    @property
    def key(self) -> str:
        """What its facts are dealt under."""
        return self.relation.id if self.relation else f"{UNRELATED} {self.head} {self.tail}"


@dataclass(frozen=True, slots=True)
class Content:
    """Everything in the files. `names` maps a type to its names; `genders` says who is "he" and who is "she"."""

    relations: tuple[RelationContent, ...]
    unrelated: tuple[RelationContent, ...]
    names: Mapping[str, tuple[str, ...]]
    members: Mapping[str, frozenset[str]]  # the same names, to ask who is of a type
    genders: Mapping[str, str]
    openings: tuple[tuple[str, ...], ...]
    closings: tuple[tuple[str, ...], ...]
    checksum: str


def tokenize(text: str) -> tuple[str, ...]:
    """Words and punctuation apart, case kept, the possessive 's on its own.

    >>> tokenize("Anna's aunt, Jean-Luc O'Neill, died.")
    ('Anna', "'s", 'aunt', ',', 'Jean-Luc', "O'Neill", ',', 'died', '.')
    """
    return tuple(_TOKEN.findall(text))


def cut_pattern(text: str) -> Pattern:
    """A pattern cut into runs of tokens and slots."""
    pieces = _SLOT.split(text)
    parts: list[tuple[str, ...] | str] = []
    for index, piece in enumerate(pieces):
        if index % 2:
            parts.append(piece)
        elif tokens := tokenize(piece):
            parts.append(tokens)
    n_tokens = sum(1 if isinstance(part, str) else len(part) for part in parts)
    first = parts[0]
    opens = isinstance(first, str) or (first[0].isalpha() and first[0] not in _NO_OPENING)
    return Pattern(text, tuple(parts), opens, n_tokens <= _LONGEST_WITH_CLOSING)


@lru_cache(maxsize=1)
def read_content() -> Content:
    """Read the TOML files beside this script."""
    raw = {name: Path(__file__).with_name(f"{name}.toml").read_bytes() for name in (*DOMAINS, *OTHER_FILES)}
    digest = hashlib.sha256()
    for name in sorted(raw):
        digest.update(name.encode() + b"\0" + raw[name] + b"\0")
    tables = {name: tomllib.loads(text.decode()) for name, text in raw.items()}
    relations = tuple(_relation(domain, entry) for domain in DOMAINS for entry in tables[domain]["relations"])
    names, contexts = tables["names"], tables["contexts"]
    genders = {name: gender for gender in ("woman", "man") for name in names[gender]}
    by_type = {**{kind: tuple(listed) for kind, listed in names.items()}, "person": tuple(genders)}
    return Content(
        relations=relations,
        unrelated=tuple(_relation(UNRELATED, entry) for entry in tables[UNRELATED]["groups"]),
        names=by_type,
        members={kind: frozenset(listed) for kind, listed in by_type.items()},
        genders=genders,
        openings=tuple(tokenize(text) for text in contexts["openings"]),
        closings=tuple(tokenize(text) for text in contexts["closings"]),
        checksum=digest.hexdigest(),
    )


def _relation(domain: str, entry: Mapping[str, Any]) -> RelationContent:
    relation = Relation(entry["id"], entry["name"], entry["description"]) if domain in DOMAINS else None
    patterns = {name: tuple(map(cut_pattern, entry[name])) for name in (PURPOSES if relation else ("test", "corpus"))}
    return RelationContent(relation, domain, entry["head"], entry["tail"], patterns)
