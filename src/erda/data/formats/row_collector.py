"""Shared by all readers of examples: the `Reading` of a file, the collection of its rows, and the marks of a tool.

Tools count characters differently: in code points or in UTF-16 units (an emoji is two), "\\r\\n" as one character, a
byte order mark as none. If a tool also exports the marked words, they reveal how it counted.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from erda.errors import DataError, unknown_name
from erda.text.descriptions import readable_name
from erda.text.marks import Mark, example_from_text
from erda.text.reading import Faults
from erda.text.sentences import split_sentences
from erda.types import NO_RELATION, Example

OVERLAPPING = "head and tail overlap"
BYTE_ORDER_MARK = "\ufeff"
UNLABELLED = "the relation has no name"
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of one file.

    `unrelated` holds the rows whose relation is null, "no_relation" or another name that means none. In
    `counterexamples` the relation of the row does not hold; it is None if the row names none. `candidates[i]` are the
    relations listed with example `i`, without the gold relation (published splits only). `duplicates` are pairs (line,
    line of the first occurrence). `left_out` counts skipped rows by reason.
    """

    path: Path
    format: str
    examples: tuple[Example, ...] = field(repr=False)
    unrelated: tuple[Example, ...] = field(default=(), repr=False)
    candidates: tuple[tuple[str, ...], ...] | None = field(default=None, repr=False)
    duplicates: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    left_out: dict[str, int] = field(default_factory=dict)
    counterexamples: tuple[Example, ...] = field(default=(), repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each relation, the most frequent first."""
        counts = Counter(str(example.relation) for example in self.examples)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class Rejected:
    """An example whose relation does not hold."""

    example: Example


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a file: its line, and a function that returns its example or the reason to skip it.

    `where` is a prefix for messages ("task 7: "). `number` identifies the row among duplicates; default: the line.
    `columns` returns all fields of the row except its id, and `id` returns the id; both work for an invalid row too.
    """

    line: int
    read: Callable[[], Example | Rejected | str]
    where: str = ""
    number: int | None = None
    columns: Callable[[], dict[str, Any]] = dict
    id: Callable[[], str | None] = lambda: None


RowReader = Callable[..., Iterator[SourceRow]]  # of a path and `Faults`; that of a table also takes `renamed`


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files: its row reader, and the expected content. In `published` files, duplicates stay."""

    name: str
    rows: RowReader
    expected: str
    published: bool = False


def collect_rows(
    path: Path,
    format: Format,
    *,
    relations: Collection[str] | None = None,
    no_relation: Collection[str] = (),
    tick: Callable[[], object] = lambda: None,
) -> Reading:
    """Read a file in a format; raise `DataError` if it has faults or no rows.

    A duplicate is kept once, except in published files; both its lines are in `Reading.duplicates`. In a user's file,
    a relation outside `relations` (the known relation ids) is a fault, and so is a repeated example id. `tick` is
    called for each row.
    """
    faults, none = Faults(path), {None, NO_RELATION, *no_relation}
    check = _RowCheck(none, relations)
    examples: list[Example] = []
    unrelated: list[Example] = []
    counterexamples: list[Example] = []
    first: dict[tuple[object, ...], int] = {}
    duplicates: list[tuple[int, int]] = []
    left_out: Counter[str] = Counter()
    n_rows = 0
    for row in format.rows(path, faults):
        n_rows += 1
        tick()
        try:
            found = row.read()
            rejected = isinstance(found, Rejected)
            example = found.example if isinstance(found, Rejected) else found
            if isinstance(example, Example) and not format.published:
                example = check.checked(example, row.line, rejected=rejected)
        except DataError as error:
            faults.add(row.line, f"{row.where}{error}")
            continue
        if isinstance(example, str):
            left_out[example] += 1
            continue
        pool = counterexamples if rejected else unrelated if example.relation in none else examples
        if pool is not unrelated or not format.published:
            number = row.line if row.number is None else row.number
            key = (example.tokens, example.head.span, example.tail.span, example.relation, rejected)
            if (before := first.setdefault(key, number)) != number:
                duplicates.append((number, before))
                if not format.published:
                    continue
        pool.append(example)
    faults.raise_if_any()
    if not n_rows:
        raise DataError(f"{path}: the file is empty; expected {format.expected}.")
    return Reading(
        path,
        format.name,
        tuple(examples),
        tuple(unrelated),
        duplicates=tuple(duplicates),
        left_out=left_out,
        counterexamples=tuple(counterexamples),
    )


class _RowCheck:
    """Checks the relations and ids of a user's examples."""

    def __init__(self, none: Collection[str | None], relations: Collection[str] | None) -> None:
        self._none, self._relations = none, relations
        self._ids: dict[str, int] = {}
        self._spelling = {readable_name(relation): relation for relation in relations or ()}

    def checked(self, example: Example, line: int, *, rejected: bool) -> Example:
        """Return the example with its relation spelled as listed, or as in its first row."""
        known, relation = self._relations, example.relation
        if relation is not None and relation not in self._none and (known is None or relation not in known):
            spelling = self._spelling.setdefault(readable_name(relation), relation)
            if known is not None and spelling not in known:
                raise DataError(_unlisted(relation, known))
            example = replace(example, relation=spelling)
        if self._ids.setdefault(example.id, line) != line:
            raise DataError(f"id {example.id!r} was already used on line {self._ids[example.id]}.")
        if rejected and relation is not None and relation in self._none:
            raise DataError("'holds' is false; name the relation that does not hold.")
        return example


def _unlisted(relation: str, relations: Collection[str]) -> str:
    if len(relations) > 100:
        return f"unknown relation {relation!r}; it is not among the {len(relations)} listed relations."
    message = unknown_name("relation", relation, relations)
    return message[0].lower() + message[1:]


def sentences_example(text: str, head: Mark, tail: Mark, *, relation: str | None, id: str) -> Example | str:
    """Build the example of two entities in a document: their sentence, or all sentences from one to the other.

    The marks are those of a tool: offsets as it counts them; the name is the words that it says they cover.
    """
    marks = find_marks(text, head, tail)
    by_start = sorted(marks, key=lambda mark: mark.start)
    if by_start[1].start < by_start[0].end:
        return OVERLAPPING
    if not relation:
        return UNLABELLED
    start, end = _around(text, by_start[0].start, by_start[1].end)
    moved = [replace(mark, start=mark.start - start, end=mark.end - start) for mark in marks]
    return example_from_text(text[start:end], *moved, relation=relation, id=id)


def find_marks(text: str, *marked: Mark) -> list[Mark]:
    """Locate a tool's marks in a text, with one way of counting for all of them; the words of the text name them."""
    for place in _countings(text):
        if all(_fits(text, place, mark) for mark in marked):
            return [replace(mark, start=place[mark.start], end=place[mark.end], name=None) for mark in marked]
    for mark in marked:
        span = f"({mark.start}, {mark.end})"
        if not 0 <= mark.start < mark.end <= len(text):
            raise DataError(f"entity {span} is not within the text ({len(text)} characters).")
        if mark.name is not None and not _same(text[mark.start : mark.end], mark.name):
            found, said = text[mark.start : mark.end][:_SHOWN], mark.name[:_SHOWN]
            raise DataError(
                f"entity {span} is {found!r} in the text, {said!r} in the annotation; was the text changed?"
            )
    raise DataError("the offsets of the two entities count characters differently.")


def _fits(text: str, place: Mapping[int, int] | range, mark: Mark) -> bool:
    if mark.start >= mark.end or mark.start not in place or mark.end not in place:
        return False
    return mark.name is None or _same(text[place[mark.start] : place[mark.end]], mark.name)


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
