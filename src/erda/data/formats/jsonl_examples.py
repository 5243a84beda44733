"""Our own formats: JSONL, plain sentences with inline marks, and relation lists.

JSONL has one JSON object per line, plain or compressed. A row has `tokens` with token spans, `text` with character
spans, `text` with the names of both entities, or `text` with inline marks. Spans exclude their end. With
`"holds": false`, the relation of the row does not hold.

A relation list is a JSON array of objects with `id` (or `pid`), `name` and `description`, a text or a list of lines.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from erda.data.formats.row_collector import Format, Reading, Rejected, SourceRow, collect_rows
from erda.errors import DataError
from erda.files import decode, decode_json
from erda.text.descriptions import tidy_description
from erda.text.marks import Mark, example_from_marks, example_from_text, marks_of_names
from erda.text.reading import Faults, JsonWalk, read_lines
from erda.types import Entity, Example, Relation, Span

Text = StrictStr | None


def _number_as_text(given: object) -> object:
    return str(given) if type(given) is int else given


def _named(given: object) -> object:
    return {"name": given} if isinstance(given, str) else given


Identifier = Annotated[Text, BeforeValidator(_number_as_text)]  # a text or a whole number
SpanRow = Annotated[list[StrictInt], Field(min_length=2, max_length=2)]


@dataclass(frozen=True, slots=True)
class EndRow:
    """Head or tail of an example: a span, or the name of its first mention in the text."""

    span: SpanRow | None = None
    name: Text = None
    id: Identifier = None
    type: Text = None


@dataclass(frozen=True, slots=True)
class EntityRow(EndRow):
    """An entity of a text."""

    span: SpanRow


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """A row of the file; other fields are ignored."""

    head: Annotated[EndRow | None, BeforeValidator(_named)] = None
    tail: Annotated[EndRow | None, BeforeValidator(_named)] = None
    tokens: Annotated[list[Annotated[StrictStr, Field(min_length=1)]], Field(min_length=1)] | None = None
    text: Text = None
    relation: Text = None
    id: Identifier = None
    source: Text = None
    holds: StrictBool | None = None  # false: the relation does not hold


def read_jsonl(path: Path, relations: Collection[str] | None = None) -> Reading:
    """Read the examples of a JSONL file with `collect_rows`. A row without `id` gets `<file>:<line>`."""
    return collect_rows(path, JSONL, relations=relations)


def jsonl_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield the rows of a JSONL file."""
    stem = path.name.split(".")[0]
    for number, line in read_lines(path, faults):
        if line and not line.isspace():
            read = partial(_read_line, line, f"{stem}:{number}")
            yield SourceRow(number, read, columns=partial(other_fields, line), id=partial(own_id, line))


JSONL = Format("jsonl", jsonl_rows, "one JSON object per line")


def own_id(line: str) -> str | None:
    """The id of a line of JSON whose other fields may be invalid; None if it has none."""
    found = _number_as_text(other_fields(line, ()).get("id"))
    return found if isinstance(found, str) and found else None


def other_fields(line: str, but: Collection[str] = ("id",)) -> dict[str, Any]:
    """The fields of a line of JSON, except those named in `but`; empty if the line is not an object."""
    try:
        found = json.loads(line)
        if "\\ud" in line.lower():  # a lone surrogate cannot be written
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return {}
    return {name: value for name, value in found.items() if name not in but} if isinstance(found, dict) else {}


def _read_line(line: str, default_id: str) -> Example | Rejected:
    row = decode_json(line, ExampleRow)
    example = _example(row, default_id)
    return Rejected(example) if row.holds is False else example


def example_to_json(example: Example, *, holds: bool = True) -> dict[str, Any]:
    """Return an example as a JSON object of our own format; `example_from_json` restores it."""
    return {
        "id": example.id,
        "tokens": list(example.tokens),
        "head": _entity_to_json(example.head),
        "tail": _entity_to_json(example.tail),
        "relation": example.relation,
        "source": example.source,
        **({} if holds else {"holds": False}),
    }


def example_from_json(row: Mapping[str, Any]) -> Example:
    """Build an example from a JSON object of our own format; an invalid object raises `DataError`."""
    return _example(decode(row, ExampleRow))


def example_from_line(line: str) -> Example:
    """Build an example from a line of JSON."""
    return _example(decode_json(line, ExampleRow))


def _example(row: ExampleRow, default_id: str = "") -> Example:
    if (row.tokens is None) == (row.text is None):
        both = "both are missing" if row.text is None else "not both"
        raise DataError(f"give either 'tokens' or 'text', {both}.")
    relation, example_id, source = row.relation or None, row.id or default_id, row.source or None
    if row.text is not None and row.head is None and row.tail is None:
        return example_from_marks(row.text, relation=relation, id=example_id, source=source)
    if row.head is None or row.tail is None:
        raise DataError(f"{'head' if row.head is None else 'tail'}: is missing.")
    if row.text is not None:
        marks = _marks(row.text, row.head, row.tail)
        return example_from_text(row.text, *marks, relation=relation, id=example_id, source=source)
    tokens = tuple(row.tokens or ())
    head, tail = _entity(row.head, "head", tokens), _entity(row.tail, "tail", tokens)
    return Example(tokens, head, tail, relation, example_id, source)


def _marks(text: str, *entities: EndRow) -> list[Mark]:
    """Marks of head and tail: their spans, or the first mentions of their names."""
    head, tail = entities
    if head.span is None and tail.span is None and head.name and tail.name:
        spans = [(mark.start, mark.end) for mark in marks_of_names(text, head.name, tail.name)]
    else:
        spans = [_span(head, "head"), _span(tail, "tail")]
    about = [(one.name, one.id or None, one.type or None) for one in entities]
    return [Mark(*span, *rest) for span, rest in zip(spans, about, strict=True)]


def _span(row: EndRow, role: str) -> tuple[int, int]:
    if row.span is None:
        raise DataError(f"{role}: its span is missing; only a text finds its entities by two names.")
    return row.span[0], row.span[1]


def _entity(row: EndRow, role: str, tokens: tuple[str, ...]) -> Entity:
    start, end = _span(row, role)
    try:
        span = Span(start, end)
    except DataError as error:
        raise DataError(f"{role} {error}") from None
    mention = " ".join(tokens[start:end])
    if end <= len(tokens) and not mention.strip():
        raise DataError(f"{role} span ({start}, {end}) covers no word.")
    return Entity(row.name or mention, span, row.id or None, row.type or None)


def _entity_to_json(entity: Entity) -> dict[str, Any]:
    row = {"name": entity.name, "id": entity.id, "span": [entity.span.start, entity.span.end]}
    return row | ({"type": entity.type} if entity.type else {})


def marked_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each line that is not blank; none has a relation."""
    stem = path.name.split(".")[0]
    for number, line in read_lines(path, faults):
        if line and not line.isspace():
            yield SourceRow(number, partial(example_from_marks, line, id=f"{stem}:{number}"))


def _joined(lines: object) -> object:
    """Join a list of texts; leave all else to the type."""
    if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
        return "\n".join(lines)
    return lines


@dataclass(frozen=True, slots=True)
class ListedRelation:
    """A relation of the file."""

    id: StrictStr | None = None
    pid: StrictStr | None = None
    name: StrictStr | None = None
    description: Annotated[StrictStr | None, BeforeValidator(_joined)] = None
    index: StrictInt | None = None


def read_relation_list(path: Path) -> list[Relation]:
    """Read relations in the order of the file, or by `index` (from 1) if they have one."""
    faults = Faults(path)
    lines: dict[str, int] = {}
    relations: list[tuple[int, Relation]] = []
    walk = JsonWalk(path)
    for line, value in walk.array():
        try:
            listed = decode(value, ListedRelation)
            if (relation_id := listed.id or listed.pid) is None:
                raise DataError("'id' is missing.")
            if lines.setdefault(relation_id, line) != line:
                raise DataError(f"relation '{relation_id}' was already listed on line {lines[relation_id]}.")
            description = listed.description or ""
            tidy_description(description)  # raises; the text itself stays, as checksums of datasets cover it
            relation = Relation(relation_id, listed.name or relation_id, description)
            relations.append((len(relations) + 1 if listed.index is None else listed.index, relation))
        except DataError as error:
            faults.add(line, str(error))
    walk.end()
    faults.raise_if_any()
    if not relations:
        raise DataError(f"{path}: no relation is listed.")
    return [relation for _, relation in sorted(relations, key=lambda item: item[0])]
