"""Texts with marked entities and relations between them: what the formats of annotation tools share.

Tools count characters in different ways: as code points, as UTF-16 does (an emoji is two), "\\r\\n" as one, a byte
order mark not at all. Where a tool also writes down the words that it marked, these tell how it counted.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate

from erda.errors import DataError
from erda.text.marks import Mark, example_from_text
from erda.text.sentences import split_sentences
from erda.types import Example

OVERLAPPING = "head and tail overlap"
BYTE_ORDER_MARK = "\ufeff"
UNLABELLED = "the relation has no name"
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Marked:
    """What a tool marked in a text: characters as it counts them, the end excluded, and the words that it saw there."""

    start: int
    end: int
    words: str | None = None
    id: str | None = None


def sentences_example(text: str, head: Marked, tail: Marked, *, relation: str | None, id: str) -> Example | str:
    """The example of two entities in a document: the sentence that both stand in, or all from the one to the other."""
    marks = find_marks(text, head, tail)
    by_start = sorted(marks, key=lambda mark: mark.start)
    if by_start[1].start < by_start[0].end:
        return OVERLAPPING
    if not relation:
        return UNLABELLED
    start, end = _around(text, by_start[0].start, by_start[1].end)
    moved = [replace(mark, start=mark.start - start, end=mark.end - start) for mark in marks]
    return example_from_text(text[start:end], *moved, relation=relation, id=id)


def find_marks(text: str, *marked: Marked) -> list[Mark]:
    """Where in a text a tool's marks stand, counted in one way for all of them."""
    for place in _countings(text):
        if all(_fits(text, place, one) for one in marked):
            return [Mark(place[one.start], place[one.end], id=one.id) for one in marked]
    for one in marked:
        span = f"({one.start}, {one.end})"
        if not 0 <= one.start < one.end <= len(text):
            raise DataError(f"entity {span} is not within the text ({len(text)} characters).")
        if one.words is not None and not _same(text[one.start : one.end], one.words):
            found, said = text[one.start : one.end][:_SHOWN], one.words[:_SHOWN]
            raise DataError(
                f"entity {span} is {found!r} in the text, {said!r} in the annotation; was the text changed?"
            )
    raise DataError("its two entities count the characters of the text differently.")


def _fits(text: str, place: Mapping[int, int] | range, one: Marked) -> bool:
    if one.start >= one.end or one.start not in place or one.end not in place:
        return False
    return one.words is None or _same(text[place[one.start] : place[one.end]], one.words)


def _around(text: str, first: int, last: int) -> tuple[int, int]:
    """Where the sentence begins that holds the first character, and where the one ends that holds the last."""
    starts, ends = _sentences(text)
    before, after = bisect_right(starts, first), bisect_left(ends, last)
    start = min(starts[before - 1], first) if before else 0
    end = max(ends[after], last) if after < len(ends) else len(text)
    return max(start, len(BYTE_ORDER_MARK) * text.startswith(BYTE_ORDER_MARK)), end


def _same(found: str, words: str) -> bool:
    return _spaced(found) == _spaced(words)


def _spaced(text: str) -> str:
    return re.sub(r"(?:\\n|\s)+", " ", text).strip()  # Label Studio writes a line's end as \n, brat as a space


def _countings(text: str) -> Iterator[Mapping[int, int] | range]:
    """How tools may have counted: the character at each of their offsets, the likeliest way first."""
    yield range(len(text) + 1)
    astral, lines = max(text, default="") > "\uffff", "\r\n" in text or text.startswith(BYTE_ORDER_MARK)
    for utf16, short in ((True, False), (False, True), (True, True)):
        if (astral or not utf16) and (lines or not short):
            widths = map(partial(_width, text, utf16, short), range(len(text)))
            yield {offset: index for index, offset in enumerate(accumulate(widths, initial=0))}


def _width(text: str, utf16: bool, short: bool, at: int) -> int:
    if short and (text.startswith("\r\n", at) or (at == 0 and text[0] == BYTE_ORDER_MARK)):
        return 0
    return 2 if utf16 and text[at] > "\uffff" else 1


@lru_cache(maxsize=2)
def _sentences(text: str) -> tuple[Sequence[int], Sequence[int]]:
    borders = list(split_sentences(text))
    return [start for start, _ in borders], [end for _, end in borders]
