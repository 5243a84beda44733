"""Plain text: one sentence per line, with inline marks, as in "[[Tesla]] was founded by {{Martin Eberhard}}."."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from erda.data.formats.row_collector import SourceRow
from erda.text.marks import example_from_marks
from erda.text.reading import Faults, read_lines

EXPECTED = "one sentence per line, with its entities in [[ ]] and {{ }}"


def marked_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each line that is not blank; none has a relation."""
    stem = path.name.split(".")[0]
    for number, line in read_lines(path, faults):
        if line and not line.isspace():
            yield SourceRow(number, partial(example_from_marks, line, id=f"{stem}:{number}"))
