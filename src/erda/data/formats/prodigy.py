"""Prodigy's JSONL, as the recipe rel.manual writes it: a text with `tokens`, `spans` and `relations`.

A relation goes from `head` to `child`: our head and tail. Both are token numbers, or spans that contain the token. A
rejected row with one relation is a counterexample of it; of several relations, nobody knows which one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from pydantic import StrictInt, StrictStr

from erda.data.formats.document_spans import Marked, sentences_example
from erda.data.formats.row_collector import Rejected, SourceRow
from erda.errors import DataError
from erda.files import decode_json
from erda.text.reading import Faults, read_lines
from erda.types import Example

EXPECTED = "one JSON object per line, as written by 'prodigy db-out'"
NO_RELATION = "the row has no relation"
NOT_ACCEPTED = "the row was not accepted"
AMBIGUOUS = "the row was rejected and has several relations"


@dataclass(frozen=True, slots=True)
class ProdigySpan:
    """A character span or a token; `token_end` is inclusive."""

    start: StrictInt
    end: StrictInt
    text: StrictStr | None = None
    token_start: StrictInt | None = None
    token_end: StrictInt | None = None
    label: StrictStr | None = None

    def holds(self, token: int) -> bool:
        """Return whether the span contains a token."""
        return self.token_start is not None and self.token_start <= token <= (self.token_end or self.token_start)


@dataclass(frozen=True, slots=True)
class ProdigyRelation:
    """A relation between two tokens, given by number, or between the spans around them."""

    head: StrictInt
    child: StrictInt
    label: StrictStr | None = None
    head_span: ProdigySpan | None = None
    child_span: ProdigySpan | None = None


@dataclass(frozen=True, slots=True)
class ProdigyRow:
    """A row of the file."""

    text: StrictStr
    relations: list[ProdigyRelation] = field(default_factory=list)
    spans: list[ProdigySpan] = field(default_factory=list)
    tokens: list[ProdigySpan] = field(default_factory=list)
    answer: StrictStr = "accept"


def prodigy_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each relation; a line without relations, or without a clear answer, yields one row to skip."""
    numbers = count(1)
    stem = path.name.split(".")[0]
    for line, text in read_lines(path, faults):
        if not text or text.isspace():
            continue
        try:
            row = decode_json(text, ProdigyRow)
        except DataError as error:
            faults.add(line, str(error))
            continue
        if reason := _skipped(row):
            yield SourceRow(line, partial(str, reason), number=next(numbers))
            continue
        for relation in row.relations:
            number = next(numbers)
            yield SourceRow(line, partial(_read, row, relation, f"{stem}:{number}"), number=number)


def _skipped(row: ProdigyRow) -> str:
    """The reason to skip a row; empty if there is none."""
    if row.answer not in ("accept", "reject"):
        return NOT_ACCEPTED
    if not row.relations:
        return NO_RELATION if row.answer == "accept" else NOT_ACCEPTED
    return AMBIGUOUS if row.answer == "reject" and len(row.relations) > 1 else ""


def _read(row: ProdigyRow, relation: ProdigyRelation, example_id: str) -> Example | Rejected | str:
    found = _example(row, relation, example_id)
    return Rejected(found) if row.answer == "reject" and isinstance(found, Example) else found


def _example(row: ProdigyRow, relation: ProdigyRelation, example_id: str) -> Example | str:
    head = _marked(row, "head", relation.head, relation.head_span)
    tail = _marked(row, "child", relation.child, relation.child_span)
    return sentences_example(row.text, head, tail, relation=(relation.label or "").strip(), id=example_id)


def _marked(row: ProdigyRow, role: str, token: int, span: ProdigySpan | None) -> Marked:
    span = span or next((each for each in row.spans if each.holds(token)), None)
    if span is None:
        if not 0 <= token < len(row.tokens):
            raise DataError(f"{role} {token} is out of range ({len(row.tokens)} tokens).")
        span = row.tokens[token]
    return Marked(span.start, span.end, span.text, type=span.label or None)
