"""One table value, four ways of writing it: terminal, Markdown, CSV, LaTeX (booktabs).

A cell is text, a whole number, a `Summary` (mean, standard deviation, n) or None (a dash). Accuracies are fractions in
records and per cent in tables; the title says so.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

DASH = "–"
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, standard deviation (n - 1 in the denominator; None for a single value) and number of values."""

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary | None:
        """The summary of some values; None for none."""
        found = list(values)
        if not found:
            return None
        mean = math.fsum(found) / len(found)
        if len(found) == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in found) / (len(found) - 1)
        return cls(mean, math.sqrt(variance), len(found))

    def scaled(self, factor: float) -> Summary:
        """The summary of the same values in another unit."""
        return Summary(self.mean * factor, None if self.deviation is None else self.deviation * factor, self.n)


Cell = str | int | Summary | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns, with a title and notes that say what the numbers are."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    decimals: int = 2
    text_columns: int = 1  # how many columns, from the left, hold text

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"table '{self.name}': a row of {len(wrong[0])} cells under {len(self.columns)} columns")


def format_cell(cell: Cell, decimals: int, *, plus_minus: str = " ± ") -> str:
    """A cell as people read it: `mean ± deviation`, the deviation only where there is one."""
    if cell is None:
        return DASH
    if isinstance(cell, Summary):
        text = f"{cell.mean:.{decimals}f}"
        return text if cell.deviation is None else f"{text}{plus_minus}{cell.deviation:.{decimals}f}"
    return str(cell)


def to_terminal(table: Table, *, width: int | None = None) -> str:
    """Columns aligned with spaces; where `width` is too small they go on below, the text columns repeated."""
    texts = [list(table.columns), *([format_cell(cell, table.decimals) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(table.columns))]
    blocks = _blocks(widths, table.text_columns, width)
    lines = [table.title, ""]
    for number, block in enumerate(blocks):
        if number:
            lines.append("")
        for index, row in enumerate(texts):
            cells = [
                row[column].ljust(widths[column]) if column < table.text_columns else row[column].rjust(widths[column])
                for column in block
            ]
            lines.append("  ".join(cells).rstrip())
            if index == 0:
                lines.append("  ".join("─" * widths[column] for column in block))
    return "\n".join([*lines, *([""] if table.notes else []), *table.notes])


def _blocks(widths: Sequence[int], n_first: int, width: int | None) -> list[list[int]]:
    """Which columns stand beside each other in a terminal of `width` characters."""
    first = list(range(n_first))
    blocks: list[list[int]] = [[]]
    room = math.inf if width is None else width - sum(widths[column] for column in first) - 2 * len(first)
    used = 0
    for column in range(n_first, len(widths)):
        used += widths[column] + 2
        if blocks[-1] and used - 2 > room:
            blocks.append([])
            used = widths[column] + 2
        blocks[-1].append(column)
    return [first + block for block in blocks]


def to_markdown(table: Table) -> str:
    """A pipe table under its title."""
    rows = [[format_cell(cell, table.decimals).replace("|", r"\|") for cell in row] for row in table.rows]
    rule = ["---" if column < table.text_columns else "---:" for column in range(len(table.columns))]
    lines = [f"| {' | '.join(cells)} |" for cells in ([*table.columns], rule, *rows)]
    return "\n".join([f"**{table.title}**", "", *lines, *(f"\n{note}" for note in table.notes), ""])


def to_csv(table: Table) -> str:
    """Full precision; a column of summaries becomes three: mean, `... sd` and `... n`."""
    spread = [any(isinstance(row[column], Summary) for row in table.rows) for column in range(len(table.columns))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header: list[str] = []
    for column, wide in zip(table.columns, spread, strict=True):
        header += [column, f"{column} sd", f"{column} n"] if wide else [column]
    writer.writerow(header)
    for row in table.rows:
        cells: list[object] = []
        for cell, wide in zip(row, spread, strict=True):
            if isinstance(cell, Summary):
                cells += [cell.mean, "" if cell.deviation is None else cell.deviation, cell.n]
            else:
                shown = "" if cell is None else cell
                cells += [shown, "", ""] if wide else [shown]
        writer.writerow(cells)
    return file.getvalue()


def to_latex(table: Table) -> str:
    r"""A booktabs `table`; needs `\usepackage{booktabs}`."""
    align = "l" * table.text_columns + "r" * (len(table.columns) - table.text_columns)
    rows = [
        [_latex_cell(cell, table.decimals) for cell in row]
        for row in ((*table.columns,), *table.rows)  # the header is a row of text
    ]
    lines = [" & ".join(cells) + r" \\" for cells in rows]
    caption = " ".join([f"{escape_latex(table.title)}.", *map(escape_latex, table.notes)])
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{table.name}}}",
            r"\end{table}",
            "",
        ]
    )


def _latex_cell(cell: Cell, decimals: int) -> str:
    if isinstance(cell, Summary):
        return "$" + format_cell(cell, decimals, plus_minus=r" \pm ") + "$"
    return "--" if cell is None else escape_latex(str(cell))


def escape_latex(text: str) -> str:
    """Text with LaTeX's own signs made harmless."""
    return "".join(LATEX_SPECIAL.get(sign, sign) for sign in text).replace("±", r"$\pm$").replace(DASH, "--")


WRITERS: dict[str, Callable[[Table], str]] = {"md": to_markdown, "csv": to_csv, "tex": to_latex}
