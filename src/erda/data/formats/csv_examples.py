"""Tables of examples: CSV files, and the first sheet of an Excel workbook (extra `excel`).

A table is a header, then one example per row; CSV is separated by commas, semicolons or tabs. Entities are marked in
one of three ways: inline in `text`; by character offsets, ends excluded, in `head_start`, `head_end`, `tail_start` and
`tail_end`; or by their names in `head` and `tail`. The columns `relation`, `id`, `source`, `head_id`, `tail_id`,
`head_type`, `tail_type` and `holds` (false: the relation does not hold) are optional. Other columns are ignored.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

from erda.data.formats.row_collector import Rejected, SourceRow
from erda.errors import DataError, counted, not_installed
from erda.files import first_line
from erda.text.marks import Mark, example_from_marks, example_from_text, example_to_marks, marks_of_names
from erda.text.reading import LEAST_BOUND, MAX_LINE, MOST_UNPACKED, Faults, opened, read_lines
from erda.types import Example

OFFSETS = ("head_start", "head_end", "tail_start", "tail_end")
WRITTEN = ("id", "text", "relation", "head_id", "tail_id", "source")
READ = frozenset((*WRITTEN, *OFFSETS, "head", "tail", "head_type", "tail_type", "holds"))
HOLDS = {**dict.fromkeys(("", "true", "yes", "1"), True), **dict.fromkeys(("false", "no", "0"), False)}
CSV_END = "\r\n"  # with this line ending, the csv module quotes every field that contains a line break
# A spreadsheet recognises a formula by the first visible character of a cell. If the comma is not its separator, a cell
# also begins after a semicolon, a tab or a line break inside a field.
_CELL = r"(?:^|(?<=[;\t\r\n]))"
_FORMULA = r"(?=(?:(?![;\t\r\n])[\s\x00-\x1f\ufeff\u200b-\u200f\u2060'])*[=+\-@＝＋－＠])"
_UNGUARDED, _GUARDED = re.compile(_CELL + _FORMULA), re.compile(f"{_CELL}'{_FORMULA}")
EXCEL = (".xlsx", ".xlsm")
ERRORS = ("#N/A", "#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")  # of formulas
MOST_ROWS = 1 << 20  # of a sheet
_SEPARATORS = ",;\t"


def table_rows(
    open_table: Callable[[Path], SourceTable], path: Path, faults: Faults, renamed: Mapping[str, str] | None = None
) -> Iterator[SourceRow]:
    """Yield the rows of a table after its header; `renamed` maps our columns to those of the file."""
    table = open_table(path)
    if not table.names:
        return
    columns = renamed_columns(path, table.columns, renamed or {})
    if fault := _header_fault(columns, table.columns):
        raise DataError(f"{path}:1: {fault}")
    stem = path.name.split(".")[0]
    for row in table.rows:
        if row.fault:
            faults.add(row.line, row.fault)
        elif any(field.strip() for field in row.fields):
            own = {name: field for name, field in zip(table.names, row.fields, strict=False) if name.lower() != "id"}
            read = partial(_read, columns, row.fields, f"{stem}:{row.line}")
            said = dict(zip(columns, map(str.strip, row.fields), strict=False))
            yield SourceRow(row.line, read, columns=partial(dict, own), id=partial(said.get, "id"))


def csv_lines(examples: Iterable[Example], counterexamples: Sequence[Example] = ()) -> Iterator[str]:
    """Write examples as CSV lines with inline marks, after a header; with counterexamples it has a column `holds`."""
    yield csv_line((*WRITTEN, *(["holds"] if counterexamples else [])))
    for pool, holds in ((examples, "true"), (counterexamples, "false")):
        for each in pool:
            row = (each.id, example_to_marks(each), each.relation, each.head.id, each.tail.id, each.source)
            yield csv_line([*(field or "" for field in row), *([holds] if counterexamples else [])])


def csv_line(fields: Sequence[object]) -> str:
    """Write one CSV row without its line ending; an apostrophe precedes anything a spreadsheet reads as a formula."""
    line = io.StringIO()
    safe = [without_formula(field) if isinstance(field, str) else field for field in fields]
    csv.writer(line, lineterminator=CSV_END).writerow(safe)
    return line.getvalue().removesuffix(CSV_END)


def without_formula(text: str) -> str:
    """Text with an apostrophe before anything a spreadsheet reads as a formula."""
    return _UNGUARDED.sub("'", text)


def renamed_columns(path: Path, found: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """Return the columns by our names; a named column that does not exist raises."""
    sources = {" ".join(source.split()).lower(): name for name, source in renamed.items()}
    if missing := [source for source in sources if source not in found]:
        raise DataError(f"{path}:1: the header has no column '{missing[0]}' ({', '.join(found)[:200]}).")
    return [sources.get(name, "" if name in renamed else name) for name in found]


def _header_fault(columns: Sequence[str], found: Sequence[str]) -> str:
    if "text" not in columns:
        shown = ", ".join(found)[:200]
        return f"the header has no column 'text' ({shown}); name yours: --columns text=NAME,relation=NAME."
    if twice := [name for name, n in Counter(columns).items() if name in READ and n > 1]:
        return f"the header names a column twice: {', '.join(twice)}."
    missing = [name for name in OFFSETS if name not in columns]
    return f"the header lacks {', '.join(missing)}." if 0 < len(missing) < len(OFFSETS) else ""


def _read(columns: Sequence[str], fields: Sequence[str], default_id: str) -> Example | Rejected:
    if len(fields) != len(columns):
        raise DataError(f"{counted(len(fields), 'field')}; the header names {len(columns)}.")
    row = {name: field for name, field in zip(columns, fields, strict=True) if name in READ}
    if OFFSETS[0] not in row:  # with offsets, the text must stay as it is: the offsets count its characters
        row = {name: _GUARDED.sub("", field) for name, field in row.items()}
    said = {name: field.strip() or None for name, field in row.items()}
    found = _example(row, relation=said.get("relation"), id=said.get("id") or default_id, source=said.get("source"))
    head = replace(found.head, id=said.get("head_id"), type=said.get("head_type"))
    example = replace(found, head=head, tail=replace(found.tail, id=said.get("tail_id"), type=said.get("tail_type")))
    holds = (said.get("holds") or "").lower()
    if holds not in HOLDS:
        raise DataError(f"holds: expected true or false, got {holds[:20]!r}.")
    return example if HOLDS[holds] else Rejected(example)


def _example(row: Mapping[str, str], **about: Any) -> Example:
    if OFFSETS[0] in row:
        a, b, c, d = (_number(row, name) for name in OFFSETS)
        return example_from_text(row["text"], Mark(a, b), Mark(c, d), **about)
    head, tail = row.get("head", "").strip(), row.get("tail", "").strip()
    if head and tail and not ("[[" in row["text"] and "{{" in row["text"]):
        return example_from_text(row["text"], *marks_of_names(row["text"], head, tail), **about)
    if not ("head" in row and "tail" in row) and not ("[[" in row["text"] or "{{" in row["text"]):
        raise DataError(
            "no entity is marked; name the columns of both entities (--columns head=NAME,tail=NAME), or mark them in "
            "the text with [[ ]] and {{ }}."
        )
    if bool(head) != bool(tail) and "[[" not in row["text"]:
        raise DataError(f"the {'tail' if head else 'head'} is empty; name both entities of the row.")
    return example_from_marks(row["text"], **about)


def _number(row: Mapping[str, str], name: str) -> int:
    text = row[name].strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise DataError(f"{name}: expected a whole number, got {text[:20]!r}.")
    return int(text)


@dataclass(frozen=True, slots=True)
class TableRow:
    """The fields of a row and its first line, counted from 1 with the header; or the reason why it cannot be read."""

    line: int
    fields: list[str]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The column names of a table as they are written, and its rows. Without a header there are no rows."""

    names: list[str]
    rows: Iterator[TableRow]

    @property
    def columns(self) -> list[str]:
        """The column names in lower case."""
        return [name.lower() for name in self.names]


def is_excel(path: Path) -> bool:
    """Return whether a file is an Excel workbook by its name."""
    return path.suffix.lower() in EXCEL


def read_table(path: Path) -> SourceTable:
    """Open a table; the ending of its name tells Excel from CSV."""
    return excel_table(path) if is_excel(path) else csv_table(path)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_table(path: Path) -> SourceTable:
    """Open a CSV file; its header shows the separator."""
    lines = (line for _, line in read_lines(path, ends=True))
    header = next(lines, "")
    return SourceTable(header_names(header), _csv_rows(lines, separator_of(header)) if header else iter(()))


def _csv_rows(lines: Iterator[str], separator: str) -> Iterator[TableRow]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 2  # first line of the row
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield TableRow(line, [], f"not CSV: {error}; is a quotation mark unclosed?")
            continue
        if fields is None:
            return
        yield TableRow(line, fields)


def separator_of(header: str) -> str:
    """Return the separator of a header: the most frequent of comma, semicolon and tab."""
    return max(_SEPARATORS, key=header.count)


def header_names(header: str) -> list[str]:
    """Return the column names of a header as they are written."""
    try:
        fields = next(csv.reader([header], delimiter=separator_of(header)), [])
    except csv.Error:
        return []
    return [name.strip() for name in fields]


# -- Excel -------------------------------------------------------------------------------------------------------------


def excel_table(path: Path) -> SourceTable:
    """Open the first sheet of a workbook. Formulas give the values that Excel stored with them."""
    rows = _excel_rows(path)
    header = next(rows, TableRow(1, []))
    names = [name.strip() for name in header.fields]
    blank = [""] * len(names)  # Excel stores no empty cells at the end of a row
    return SourceTable(names, (replace(row, fields=row.fields + blank[len(row.fields) :]) for row in rows))


def _excel_rows(path: Path) -> Iterator[TableRow]:
    with opened(path) as file:
        if find_spec("openpyxl") is None:
            raise DataError(f"{path}: {not_installed(['openpyxl'])}, or save the sheet as CSV (UTF-8).")
        try:
            sheet = _first_sheet(path, file)
            for line, cells in enumerate(sheet.iter_rows(values_only=True), 1):
                if line > MOST_ROWS:  # a damaged number of a row: all rows before it would be read as empty
                    raise DataError(f"{path}: has more than {MOST_ROWS:,} rows; save the sheet as CSV (UTF-8).")
                yield TableRow(line, _without_empty_end([cell_text(one) for one in cells]))
        except DataError:
            raise
        except Exception as error:  # of many kinds: openpyxl does not check what it reads
            raise DataError(
                f"{path}: cannot be read ({first_line(error)}); it is damaged, protected by a password, or not an "
                "Excel workbook. Save it again, or save the sheet as CSV (UTF-8)."
            ) from None


def _first_sheet(path: Path, file: BinaryIO) -> Any:
    from openpyxl import load_workbook

    with ZipFile(file) as packed:
        size = sum(one.file_size for one in packed.infolist())
    if size > max(LEAST_BOUND, MOST_UNPACKED * path.stat().st_size):
        raise DataError(f"{path}: unpacks to more than {MOST_UNPACKED} times its size; save the sheet as CSV (UTF-8).")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and checks, which are not read
        sheet = load_workbook(file, read_only=True, data_only=True).worksheets[0]
    sheet.reset_dimensions()  # some programs store wrong ones
    return sheet


def cell_text(value: Any) -> str:
    """Return a cell as text: whole numbers without a decimal point, dates as 2026-11-16; an error is empty.

    >>> cell_text(3.0), cell_text(True), cell_text("#N/A"), cell_text(" a ")
    ('3', 'true', '', ' a ')
    """
    if value is None or value in ERRORS:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _without_empty_end(fields: list[str]) -> list[str]:
    while fields and not fields[-1].strip():
        fields.pop()
    return fields
