"""Documents with marked entities and relations between them, as annotation tools export them.

Tools count characters differently: in code points or in UTF-16 units (an emoji is two), "\\r\\n" as one character, a
byte order mark as none. If a tool also exports the marked words, they reveal how it counted.
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
    """A tool's mark in a text: offsets as the tool counts them, end excluded, and the words it covers."""

    start: int
    end: int
    words: str | None = None
    id: str | None = None
    type: str | None = None


def sentences_example(text: str, head: Marked, tail: Marked, *, relation: str | None, id: str) -> Example | str:
    """Build the example of two entities in a document: their sentence, or all sentences from one to the other."""
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
    """Locate a tool's marks in a text, with one way of counting for all of them."""
    for place in _countings(text):
        if all(_fits(text, place, mark) for mark in marked):
            return [Mark(place[mark.start], place[mark.end], id=mark.id, type=mark.type) for mark in marked]
    for mark in marked:
        span = f"({mark.start}, {mark.end})"
        if not 0 <= mark.start < mark.end <= len(text):
            raise DataError(f"entity {span} is not within the text ({len(text)} characters).")
        if mark.words is not None and not _same(text[mark.start : mark.end], mark.words):
            found, said = text[mark.start : mark.end][:_SHOWN], mark.words[:_SHOWN]
            raise DataError(
                f"entity {span} is {found!r} in the text, {said!r} in the annotation; was the text changed?"
            )
    raise DataError("the offsets of the two entities count characters differently.")


def _fits(text: str, place: Mapping[int, int] | range, mark: Marked) -> bool:
    if mark.start >= mark.end or mark.start not in place or mark.end not in place:
        return False
    return mark.words is None or _same(text[place[mark.start] : place[mark.end]], mark.words)


def _around(text: str, first: int, last: int) -> tuple[int, int]:
    """Return the start of the sentence with the first character and the end of the sentence with the last."""
    starts, ends = _sentences(text)
    before, after = bisect_right(starts, first), bisect_left(ends, last)
    start = min(starts[before - 1], first) if before else 0
    end = max(ends[after], last) if after < len(ends) else len(text)
    return max(start, len(BYTE_ORDER_MARK) * text.startswith(BYTE_ORDER_MARK)), end


def _same(found: str, words: str) -> bool:
    return _spaced(found) == _spaced(words)


def _spaced(text: str) -> str:
    return re.sub(r"(?:\\n|\s)+", " ", text).strip()  # Label Studio writes a line break as \n, brat as a space


def _countings(text: str) -> Iterator[Mapping[int, int] | range]:
    """Yield the ways tools count, likeliest first: each maps a tool's offset to a character index."""
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
