"""How commands print tables and sentences."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erda.benchmark.report.tables import Table
    from erda.types import Example

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
BRACKETS = (("[head: ", "]"), ("[tail: ", "]"))
SHORT_BRACKETS = (("[", "]"), ("{", "}"))
COLOURS = (("\033[1;34m", "\033[0m"), ("\033[1;33m", "\033[0m"))


def printable(text: str) -> str:
    """A text from elsewhere for a terminal: each character that would steer it becomes a replacement character."""
    return _CONTROL.sub("\ufffd", text.encode(errors="replace").decode())


def marked(example: Example, marks: tuple[tuple[str, str], tuple[str, str]] = BRACKETS) -> str:
    """A sentence with its head and tail in marks: [head: Oslo] lies in [tail: Norway]."""
    words = [printable(token) for token in example.tokens]
    for (left, right), entity in zip(marks, (example.head, example.tail), strict=True):
        words[entity.span.start] = left + words[entity.span.start]
        words[entity.span.end - 1] += right
    return " ".join(words)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables one below the other, folded where the terminal is narrow."""
    from erda.benchmark.report.tables import to_terminal

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in tables:
        print(to_terminal(table, width=width), end="\n\n")
