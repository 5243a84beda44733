"""Read texts: a line of a text file, an object of a .jsonl file, a row of a table (.csv, .xlsx) with a column `text`.

Annotated texts hold all their entities and relations, to tune and to evaluate extraction:

    {"text": "Amazon was founded by Jeff Bezos.", "entities": [{"span": [0, 6]}, {"span": [22, 32]}],
     "relations": [{"head": 0, "tail": 1, "relation": "founded by"}]}

A span counts characters and excludes its end. `head` and `tail` are places in `entities`, counted from 0. Mentions of
one entity have the same `id`, or the same name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from pydantic import StrictInt, StrictStr

from erda.answers import Answer
from erda.app.inputs import read_each
from erda.data.formats.csv_examples import is_excel, read_table, renamed_columns
from erda.data.formats.jsonl_examples import EntityRow, Identifier, other_fields, own_id
from erda.data.own_data import refuse_spreadsheet
from erda.errors import DataError, SettingsError, unknown_name
from erda.files import decode, decode_json, user_path
from erda.text.keys import plain
from erda.text.marks import Mark, check_text
from erda.text.reading import Faults, read_lines

READ = ("text", "id", "entities")
COLUMNS = ("id", "text")  # of a table
T = TypeVar("T")
FIRST_LINES = 5  # that are read to recognise a file


@dataclass(frozen=True, slots=True)
class TextRow:
    """A line of a JSONL file of texts; the entities may be given by their characters. Other fields are
    kept with the answers."""

    text: StrictStr
    id: Identifier = None
    entities: list[EntityRow] | None = None

    def marks(self) -> list[Mark] | None:
        """The given entities; None if a tagger is to find them."""
        if self.entities is None:
            return None
        return [Mark(one.span[0], one.span[1], one.name, one.id or None, one.type or None) for one in self.entities]


@dataclass(frozen=True, slots=True)
class Unread:
    """A row or line that cannot be read, and the reason."""

    line: int
    error: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class TextLine:
    """A text of a file, or the reason why it cannot be read."""

    line: int
    row: TextRow
    error: str = ""
    columns: dict[str, Any] = field(default_factory=dict)  # the other fields of the row, as they are


def read_texts(path: Path, *, columns: Mapping[str, str] | None = None) -> Iterator[TextLine]:
    """Yield the texts of a file; empty lines are left out.

    `columns` names the columns `text` and `id` of a table.
    """
    refuse_spreadsheet(path)
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".csv") or is_excel(path):
        yield from _table_rows(path, columns or {})
        return
    if columns:
        raise SettingsError(f"--columns: only tables (.csv, .xlsx) have columns, not {path}.")
    is_row = name.endswith(".jsonl")
    for line in in_place(path, partial(read_lines, path)):
        if isinstance(line, Unread):
            yield TextLine(line.line, TextRow(""), line.error)
        elif line[1].strip() and not is_row:
            yield TextLine(line[0], TextRow(line[1]))
        elif line[1].strip():
            columns = other_fields(line[1], READ)
            try:
                yield TextLine(line[0], decode_json(line[1], TextRow), columns=columns)
            except DataError as fault:
                yield TextLine(line[0], TextRow("", own_id(line[1])), str(fault), columns)


def _table_rows(path: Path, renamed: Mapping[str, str]) -> Iterator[TextLine]:
    for name in renamed:
        if name not in COLUMNS:
            raise SettingsError(f"--columns: {unknown_name('column', name, COLUMNS)}")
    table = read_table(path)
    columns = renamed_columns(path, table.columns, renamed)
    if "text" not in columns:
        shown = ", ".join(table.names)[:200]
        raise DataError(f"{path}:1: the header has no column 'text' ({shown}); name yours: --columns text=NAME.")
    for one in table.rows:
        row = dict(zip(columns, one.fields, strict=False))
        if one.fault:
            yield TextLine(one.line, TextRow(""), one.fault)
        elif row.get("text", "").strip():
            known = zip(columns, table.names, one.fields, strict=False)
            own = {name: field for column, name, field in known if column not in READ}
            yield TextLine(one.line, TextRow(row["text"], row.get("id") or None), columns=own)


class _Skipped(Faults):
    """Collects the rows that a reader skips."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.met: list[Unread] = []

    def add(self, line: int, message: str) -> None:
        self.met.append(Unread(line, message))


def in_place(path: Path, read: Callable[[Faults], Iterator[T]]) -> Iterator[T | Unread]:
    """Yield the rows of a reader; yield an `Unread` for each skipped row."""
    skipped = _Skipped(path)
    for one in chain(read(skipped), [None]):
        yield from skipped.met
        skipped.met.clear()
        if one is not None:
            yield one


def text_rows(texts: str | Path | Iterable[str | TextRow], columns: Mapping[str, str] | None = None) -> list[TextRow]:
    """Read texts: a file (text, .jsonl, .csv), or a list of texts. A line that cannot be read raises."""
    if not isinstance(texts, str | Path):
        rows = [TextRow(one) if isinstance(one, str) else one for one in texts]
        if wrong := [one for one in rows if not isinstance(one, TextRow)]:
            raise DataError(f"texts: expected texts, got {wrong[0]!r:.80}.")
        return rows
    rows = []
    for line in read_texts(Path(texts), columns=columns):
        try:
            if line.error:
                raise DataError(line.error)
            check_text(line.row.text, most=None)
        except DataError as fault:
            raise DataError(f"{texts}:{line.line}: {fault}") from None
        rows.append(line.row)
    return rows


@dataclass(frozen=True, slots=True)
class AnnotatedRelation:
    """A relation between two entities of the row."""

    head: StrictInt
    tail: StrictInt
    relation: StrictStr


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A text with its entities and all relations that hold between them; other fields are not read."""

    text: StrictStr
    entities: list[EntityRow]
    relations: list[AnnotatedRelation]
    id: Identifier = None

    def __post_init__(self) -> None:
        for one in self.relations:
            for place in (one.head, one.tail):
                if not 0 <= place < len(self.entities):
                    raise DataError(f"relation '{one.relation}' names entity {place} of {len(self.entities)}.")

    @property
    def row(self) -> TextRow:
        """The text with its entities."""
        return TextRow(self.text, self.id, self.entities)

    def keys(self) -> list[str]:
        """The entity behind each mention: its id, else its name."""
        return [one.id or plain(one.name or self.text[one.span[0] : one.span[1]]) for one in self.entities]

    def triples(self) -> set[tuple[str, str, str]]:
        """The annotated triples: entity, relation, entity."""
        keys = self.keys()
        return {(keys[one.head], one.relation, keys[one.tail]) for one in self.relations}

    def key_of(self, answer: Answer, role: str) -> str:
        """The annotated entity that an answer is about, by overlap or by name; else the name of the mention."""
        entity, keys = getattr(answer.example, role), self.keys()
        if answer.place:
            start, end = getattr(answer.place, f"{role}_start"), getattr(answer.place, f"{role}_end")
            spans = [(one.span[0], one.span[1]) for one in self.entities]
            if (start, end) in spans:
                return keys[spans.index((start, end))]
            for (first, last), key in zip(spans, keys, strict=True):
                if first < end and start < last:
                    return key
        return plain(entity.resolved or entity.name)


def is_annotated(source: object) -> TypeGuard[str | Path | Sequence[AnnotatedText | Mapping[str, Any]]]:
    """Whether a file, or a list of rows, holds annotated texts."""
    rows: Sequence[object] = source if isinstance(source, list | tuple) else ()
    if isinstance(source, str | Path) and Path(source).is_file() and ".json" in Path(source).name:
        lines = (line for _, line in read_lines(Path(source)) if line.strip())
        with suppress(ValueError, DataError):
            rows = [json.loads(line) for line in islice(lines, FIRST_LINES)]
    return bool(rows) and all(map(_has_fields, rows))


def _has_fields(row: object) -> bool:
    return isinstance(row, AnnotatedText) or (isinstance(row, Mapping) and {"entities", "relations"} <= row.keys())


def read_annotated(source: str | Path | Iterable[AnnotatedText | Mapping[str, Any]]) -> list[AnnotatedText]:
    """Read annotated texts from a JSONL file or a list; report all faults at once."""
    if isinstance(source, str | Path):
        path, found = user_path(source), list[AnnotatedText]()
        faults = Faults(path)
        for number, line in read_lines(path, faults):
            if line.strip():
                try:
                    found.append(decode_json(line, AnnotatedText))
                except DataError as fault:
                    faults.add(number, str(fault))
        faults.raise_if_any()
        return found
    return read_each(
        source, lambda one: one if isinstance(one, AnnotatedText) else decode(one, AnnotatedText), what="text"
    )
