"""Tables, and writers for three formats: terminal, Markdown, CSV.

A cell is text, an integer, a `Summary` (mean, standard deviation, n) or None (a dash). Accuracies are fractions in
records and per cent in tables. Names of relations, methods and datasets are untrusted: `ResultTable` removes control
characters, and each writer escapes its own markup.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass

from erda.benchmark.statistics import Summary
from erda.data.formats.csv_examples import without_formula
from erda.errors import printable

DASH = "–"
MARKDOWN_SPECIAL = re.compile(r"([\\`*\[\]<>|]|(?<!\w)_|_(?!\w)|^#)")
NUMBERS = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( to [-+]?[\d.]+)?")
Cell = str | int | Summary | None
Cells = tuple[Cell, ...]


def single_line(text: str) -> str:
    """Text without line breaks and control characters."""
    return printable(re.sub(r"\s*[\r\n\v\f\x85\u2028\u2029]\s*", " ", text))


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows under named columns, with a title and notes."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    notes: tuple[str, ...] = ()
    decimals: int = 2
    text_columns: int = 1  # number of text columns, from the left

    def __post_init__(self) -> None:
        if wrong := [row for row in self.rows if len(row) != len(self.columns)]:
            raise ValueError(f"table '{self.name}': a row of {len(wrong[0])} cells under {len(self.columns)} columns")
        rows = tuple(tuple(single_line(cell) if isinstance(cell, str) else cell for cell in row) for row in self.rows)
        for name, value in {
            "title": single_line(self.title),
            "columns": tuple(map(single_line, self.columns)),
            "rows": rows,
            "notes": tuple(map(single_line, self.notes)),
        }.items():
            object.__setattr__(self, name, value)


def format_cell(cell: Cell, decimals: int) -> str:
    """Format a cell; a summary as `mean ± deviation`, or as the mean alone without a deviation."""
    if cell is None:
        return DASH
    if isinstance(cell, Summary):
        text = f"{cell.mean:.{decimals}f}"
        return text if cell.deviation is None else f"{text} ± {cell.deviation:.{decimals}f}"
    return str(cell)


def to_terminal(table: ResultTable) -> str:
    """Align columns with spaces, under the title."""
    from tabulate import tabulate

    rows = [[format_cell(cell, table.decimals) for cell in row] for row in table.rows]
    align = ["left" if column < table.text_columns else "right" for column in range(len(table.columns))]
    text = tabulate(rows, headers=list(table.columns), tablefmt="simple", disable_numparse=True, colalign=align)
    return "\n".join([table.title, "", text, *([""] if table.notes else []), *table.notes])


def to_markdown(table: ResultTable) -> str:
    """Pipe table under its title."""
    rows = [[escape_markdown(format_cell(cell, table.decimals)) for cell in row] for row in table.rows]
    rule = ["---" if column < table.text_columns else "---:" for column in range(len(table.columns))]
    lines = [f"| {' | '.join(cells)} |" for cells in (map(escape_markdown, table.columns), rule, *rows)]
    notes = [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join([f"**{escape_markdown(table.title)}**", "", *lines, *notes, ""])


def escape_markdown(text: str) -> str:
    """Text on one line with Markdown's special characters escaped."""
    return MARKDOWN_SPECIAL.sub(r"\\\1", single_line(text))


def to_csv(table: ResultTable) -> str:
    """CSV with full precision; a column of summaries becomes three: mean, `... sd` and `... n`."""
    spread = [any(isinstance(row[column], Summary) for row in table.rows) for column in range(len(table.columns))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header: list[str] = []
    for column, wide in zip(table.columns, spread, strict=True):
        header += [column, f"{column} sd", f"{column} n"] if wide else [column]
    writer.writerow(map(_csv_text, header))
    for row in table.rows:
        cells: list[object] = []
        for cell, wide in zip(row, spread, strict=True):
            if isinstance(cell, Summary):
                cells += [cell.mean, "" if cell.deviation is None else cell.deviation, cell.n]
            else:
                shown = "" if cell is None else _csv_text(cell) if isinstance(cell, str) else cell
                cells += [shown, "", ""] if wide else [shown]
        writer.writerow(cells)
    return file.getvalue()


def _csv_text(text: str) -> str:
    """Text that no spreadsheet evaluates; numbers stay numbers."""
    return text if NUMBERS.fullmatch(text) else without_formula(text)


WRITERS: dict[str, Callable[[ResultTable], str]] = {"md": to_markdown, "csv": to_csv}
