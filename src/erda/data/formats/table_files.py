"""Tables: a CSV file, or the first sheet of an Excel workbook (extra `excel`), as a header and rows of text."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

from erda.errors import DataError, not_installed
from erda.text.reading import LEAST_BOUND, MAX_LINE, MOST_UNPACKED, opened, read_lines

EXCEL = (".xlsx", ".xlsm")
MOST_ROWS = 1 << 20  # of a sheet
_SEPARATORS = ",;\t"


@dataclass(frozen=True, slots=True)
class TableRow:
    """The fields of a row and its first line, counted from 1 with the header; or the reason why it cannot be read."""

    line: int
    fields: list[str]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Table:
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


def read_table(path: Path) -> Table:
    """Open a table; the ending of its name tells Excel from CSV."""
    return excel_table(path) if is_excel(path) else csv_table(path)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_table(path: Path) -> Table:
    """Open a CSV file; its header shows the separator."""
    lines = (line for _, line in read_lines(path, ends=True))
    header = next(lines, "")
    return Table(header_names(header), _csv_rows(lines, separator_of(header)) if header else iter(()))


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


def excel_table(path: Path) -> Table:
    """Open the first sheet of a workbook. Formulas give the values that Excel stored with them."""
    rows = _excel_rows(path)
    header = next(rows, TableRow(1, []))
    names = [name.strip() for name in header.fields]
    return Table(names, (TableRow(row.line, _padded(row.fields, len(names))) for row in rows))


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
                f"{path}: not an Excel workbook, damaged, or protected by a password ({type(error).__name__}); "
                "save it again, or save the sheet as CSV (UTF-8)."
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
    """Return a cell as text: whole numbers without a decimal point, dates as 2026-11-16.

    >>> cell_text(3.0), cell_text(True), cell_text(None), cell_text(" a ")
    ('3', 'true', '', ' a ')
    """
    if value is None:
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


def _padded(fields: Sequence[str], n: int) -> list[str]:
    """Excel stores no empty cells at the end of a row."""
    return [*fields, *[""] * (n - len(fields))]
