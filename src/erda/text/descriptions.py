"""Names and descriptions of relations.

Naming rule for relations from any source: the id is the given text with single spaces, the name is the id in words. Two
ids with the same name are one relation: "founded by" and "founded_by", "org:founded_by" and "organization founded by".

A description is lines of text. A line that marks both entities is a pattern; it counts as a sentence:

the person or organisation that began a company
[[X]] was set up by {{Y}}.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from erda.errors import DataError, join_faults
from erda.text.marks import example_from_marks
from erda.types import Entity, Example, Span

_TACRED_PREFIXES = {"per": "person", "org": "organization"}
BLANK = "something"  # placeholder for an entity where the encoder has no mask


def spaced(text: str) -> str:
    """Return text in composed form (NFC) with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@lru_cache(maxsize=1 << 12)
def readable_name(relation_id: str) -> str:
    """Return a relation's id as words.

    >>> readable_name("per:city_of_birth"), readable_name("org:number_of_employees/members"), readable_name("_")
    ('person city of birth', 'organization number of employees or members', '_')
    """
    prefix, colon, rest = relation_id.partition(":")
    words = f"{_TACRED_PREFIXES.get(prefix, prefix)} {rest}" if colon else relation_id
    return spaced(words.replace("_", " ").replace("/", " or ")) or spaced(relation_id) or relation_id


def tidy_description(description: str) -> str:
    """Return a description with single spaces, without empty and repeated lines; raise if a pattern lacks a mark.

    Patterns that differ only inside the marks are one pattern: the first stays.
    """
    lines: dict[Example | str, str] = {}
    faults = []
    for line in filter(None, map(spaced, description.splitlines())):
        try:
            lines.setdefault(read_pattern(line) if is_pattern(line) else line, line)
        except DataError as fault:
            faults.append(f"description, line '{line:.80}': {fault}")
    if faults:
        raise DataError(join_faults(faults))
    return "\n".join(lines.values())


def meaning_of(description: str) -> str:
    """Join the lines of a description, without its patterns."""
    return " ".join(line for line in description.splitlines() if not is_pattern(line))


def patterns_of(description: str) -> list[str]:
    """Return the patterns of a description."""
    return [line for line in description.splitlines() if is_pattern(line)]


def is_pattern(line: str) -> bool:
    """Whether a line holds a mark, complete or not."""
    return any(mark in line for mark in ("[[", "]]", "{{", "}}"))


def read_pattern(line: str) -> Example:
    """Read a pattern; a placeholder replaces the words of each entity."""
    marked = example_from_marks(line)
    first, second = sorted((marked.head.span, marked.tail.span))
    tokens = (*marked.tokens[: first.start], BLANK, *marked.tokens[first.end : second.start], BLANK)
    places = {span: Span(at, at + 1) for span, at in ((first, first.start), (second, len(tokens) - 1))}
    head, tail = (Entity(BLANK, places[one.span]) for one in (marked.head, marked.tail))
    return Example((*tokens, *marked.tokens[second.end :]), head, tail)
