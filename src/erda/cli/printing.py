"""How commands print tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erda.benchmark.report.tables import Table


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables one below the other, folded where the terminal is narrow."""
    from erda.benchmark.report.tables import to_terminal

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in tables:
        print(to_terminal(table, width=width), end="\n\n")
