"""Read plain texts: a line of a text file, an object of a .jsonl file, a row of a
table (.csv, .xlsx) with a column `text`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import StrictStr

from erda.data.formats.csv_examples import is_excel, read_table, renamed_columns
from erda.data.formats.jsonl_examples import EntityRow, Identifier, other_fields, own_id
from erda.data.own_data import refuse_spreadsheet
from erda.errors import DataError, SettingsError, unknown_name
from erda.files import decode_json
from erda.text.marks import Mark
from erda.text.reading import Faults, read_lines

READ = ("text", "id", "entities")
COLUMNS = ("id", "text")  # of a table
T = TypeVar("T")


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


def read_texts(path: Path, *, skip: int = 0, columns: Mapping[str, str] | None = None) -> Iterator[TextLine]:
    """Yield the texts of a file that begin after the first `skip` lines; empty lines are left out.

    `columns` names the columns `text` and `id` of a table.
    """
    refuse_spreadsheet(path)
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".csv") or is_excel(path):
        yield from (line for line in _table_rows(path, columns or {}) if line.line > skip)
        return
    if columns:
        raise SettingsError(f"--columns: only tables (.csv, .xlsx) have columns, not {path}.")
    is_row = name.endswith(".jsonl")
    for line in in_place(path, partial(read_lines, path, skip=skip)):
        if isinstance(line, Unread):
            yield TextLine(line.line, TextRow(""), line.error)
        elif line[1].strip():
            if not is_row:
                yield TextLine(line[0], TextRow(line[1]))
                continue
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
    columns, fault = renamed_columns(table.columns, renamed)
    if not fault and "text" not in columns:
        fault = f"the header has no column 'text' ({', '.join(table.names)[:200]}); name yours: --columns text=NAME."
    if fault:
        raise DataError(f"{path}:1: {fault}")
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
