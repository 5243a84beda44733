"""Two entities marked in a text: by character offsets, or inline as in "[[Tesla]] was founded by {{Martin Eberhard}}".

An entity boundary is always a token boundary.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from erda.errors import DataError, printable
from erda.types import Entity, Example, Span

MOST_CHARACTERS = 20_000  # per sentence
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_MARK = re.compile(r"\[\[|\]\](?!\])|\{\{|\}\}(?!\})")
_DOUBLED = re.compile(r"([\[\]{}])(?=\1)")
_ROLES = {"[[": "head", "]]": "head", "{{": "tail", "}}": "tail"}
_PAIRS = {"head": ("[[", "]]"), "tail": ("{{", "}}")}
_HOW = "put the first entity in [[ ]] and the second in {{ }}, once each."


@dataclass(frozen=True, slots=True)
class Mark:
    """The characters `start` to `end` of a text, the end excluded, as the mention of an entity.

    `name` defaults to the marked text; `id` identifies the entity itself; `type` is its kind.
    """

    start: int
    end: int
    name: str | None = None
    id: str | None = None
    type: str | None = None


def check_text(text: str, *, most: int | None = MOST_CHARACTERS) -> None:
    """Reject text with control characters, or with more than `most` characters."""
    if most is not None and len(text) > most:
        raise DataError(f"the text has {len(text):,} characters, at most {most:,} are read; give a sentence.")
    if found := CONTROL.search(text):
        raise DataError(f"the text holds a control character ({printable(found[0])} at character {found.start()}).")


def example_from_text(
    text: str, head: Mark, tail: Mark, *, relation: str | None = None, id: str = "", source: str | None = None
) -> Example:
    """Build an example from a text and two character spans.

    >>> example = example_from_text("Ann Lee left Oslo.", Mark(0, 7), Mark(13, 17))
    >>> example.tokens, example.head.name, example.tail.span
    (('Ann', 'Lee', 'left', 'Oslo', '.'), 'Ann Lee', Span(start=3, end=4))
    """
    if not text.strip():
        raise DataError("the text is empty.")
    for role, mark in (("head", head), ("tail", tail)):
        span = f"{role} span ({mark.start}, {mark.end})"
        if mark.start < 0:
            raise DataError(f"{span} starts before the first character.")
        if mark.end <= mark.start:
            raise DataError(f"{span} is empty; an entity has at least one character.")
        if mark.end > len(text):
            raise DataError(f"{span} ends after the last character ({len(text)} characters).")
        if not text[mark.start : mark.end].strip():
            raise DataError(f"{span} covers no word.")
    if head.start < tail.end and tail.start < head.end:
        spans = f"head span ({head.start}, {head.end}) overlaps tail span ({tail.start}, {tail.end})"
        raise DataError(f"{spans}; mark two separate mentions.")
    from erda.text.sentences import words_of  # compiles large regular expressions

    tokens: list[str] = []
    token_at = {0: 0}
    for left, right in pairwise(sorted({0, len(text), head.start, head.end, tail.start, tail.end})):
        tokens += words_of(text, left, right)
        token_at[right] = len(tokens)
    entities = [
        Entity(
            unicodedata.normalize("NFC", mark.name or text[mark.start : mark.end].strip()),
            Span(token_at[mark.start], token_at[mark.end]),
            mark.id,
            mark.type,
        )
        for mark in (head, tail)
    ]
    return Example(tuple(tokens), entities[0], entities[1], relation, id, source)


def example_from_marks(text: str, *, relation: str | None = None, id: str = "", source: str | None = None) -> Example:
    """Build an example from a text with inline marks: the head in [[ ]], the tail in {{ }}, in either order.

    >>> example = example_from_marks("[[Tesla]] was founded by {{Martin Eberhard}}.", relation="founded_by")
    >>> example.head.name, example.tail.name, example.tail.span
    ('Tesla', 'Martin Eberhard', Span(start=4, end=6))
    """
    plain, at, opened_at = "", 0, 0
    inside: str | None = None
    found: dict[str, Mark] = {}
    for mark in _MARK.finditer(text):
        plain += text[at : mark.start()]
        at = mark.end()
        role, said = _ROLES[mark.group()], f"'{mark.group()}' at character {mark.start()}"
        if mark.group() == _PAIRS[role][0]:
            if inside:
                raise DataError(
                    f"{said} stands inside the {inside}; close the {inside} first: entities cannot overlap."
                )
            if role in found:
                raise DataError(f"{said} marks a second {role}; {_HOW}")
            inside, opened_at = role, len(plain)
        elif inside != role:
            was = f"the {inside} ends with '{_PAIRS[inside][1]}'" if inside else f"nothing is open; {_HOW}"
            raise DataError(f"{said} closes no {role}: {was}")
        else:
            if not plain[opened_at:].strip():
                raise DataError(f"the {role} marks no word; {_HOW}")
            found[role], inside = Mark(opened_at, len(plain)), None
    if inside:
        raise DataError(f"'{_PAIRS[inside][0]}' is never closed; write '{_PAIRS[inside][1]}' where the {inside} ends.")
    for role in _PAIRS:
        if role not in found:
            raise DataError(f"no {role} is marked; {_HOW}")
    return example_from_text(plain + text[at:], found["head"], found["tail"], relation=relation, id=id, source=source)


def example_to_marks(example: Example) -> str:
    """Return the tokens of an example, joined by spaces, with inline marks around its entities.

    A space splits any mark inside a token, so that the text can be read back.

    >>> example_to_marks(example_from_marks("[[Ann Lee]] left {{Oslo}}."))
    '[[Ann Lee]] left {{Oslo}} .'
    """
    tokens = list(example.tokens)
    if _DOUBLED.search(" ".join(tokens)):
        tokens = [_DOUBLED.sub(r"\1 ", token) for token in tokens]
    for role, entity in (("head", example.head), ("tail", example.tail)):
        opening, closing = _PAIRS[role]
        first, last = entity.span.start, entity.span.end - 1
        tokens[first] = opening + (" " if tokens[first][0] in "[{" else "") + tokens[first]
        tokens[last] += (" " if tokens[last][-1] in "]}" else "") + closing
    return " ".join(tokens)


def marks_of_names(text: str, head: str, tail: str) -> tuple[Mark, Mark]:
    """Mark the first mentions of two entities that do not overlap."""
    mentions = {}
    for role, name in (("head", head), ("tail", tail)):
        words = r"\s+".join(map(re.escape, name.split()))
        mentions[role] = [Mark(*found.span()) for found in re.finditer(rf"(?<!\w){words}(?!\w)", text)]
        if not mentions[role]:
            raise DataError(f"the {role} {name[:80]!r} does not occur in the text.")
    for first in mentions["head"]:
        for second in mentions["tail"]:
            if first.end <= second.start or second.end <= first.start:
                return first, second
    raise DataError(
        f"the head {head[:80]!r} and the tail {tail[:80]!r} overlap in the text; mark two separate mentions."
    )
