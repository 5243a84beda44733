"""Print tables and sentences with control characters escaped, since names and texts come from untrusted files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from erda.errors import one_line, printable

if TYPE_CHECKING:
    from erda.benchmark.report.table_formats import ResultTable
    from erda.types import Example


def marked(example: Example) -> str:
    """A sentence with its head and tail in marks: [Oslo] lies in {Norway}."""
    words = [one_line(token) for token in example.tokens]
    for (left, right), entity in (("[]", example.head), ("{}", example.tail)):
        words[entity.span.start] = left + words[entity.span.start]
        words[entity.span.end - 1] += right
    return " ".join(words)


class PrintableOutput:
    """A stream that escapes the control characters of everything written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream  # for text that is escaped already, with colours

    def write(self, text: str) -> int:
        """Write text, escaped."""
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def print_line(text: str = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print one line; line breaks inside it are escaped, since they come from a name.

    Commands print everything with the functions of this module, never with `print`.
    """
    print(one_line(text), file=file, flush=flush)


def print_note(text: str) -> None:
    """Print one line on stderr."""
    print_line(text, file=sys.stderr)


def print_columns(sides: str, rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as their longest cells; `sides` has `<` or `>` for each column."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print_line("  ".join(map("{:{}{}}".format, row, sides, widths)).rstrip())


def print_fault(fault: str) -> None:
    """Print a fault on stderr; lines after its first are indented, so that none can pass for another message."""
    print("erda: " + printable(fault).replace("\n", "\n  "), file=sys.stderr)


def print_tables(tables: Iterable[ResultTable]) -> None:
    """Print tables one below the other."""
    from erda.benchmark.report.table_formats import to_terminal

    for table in tables:
        print(to_terminal(table), end="\n\n")
