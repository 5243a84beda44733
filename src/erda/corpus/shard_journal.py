"""A journal: sealed values, one per line, each on disk as soon as it is added."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from erda.errors import DataError, ErdaError, WriteError
from erda.files import cannot_write, decode_sealed, read_bytes, sealed

T = TypeVar("T")


def add_to_journal(path: Path, value: Any) -> None:
    """Add a sealed value to a journal; it is on the disk when this returns."""
    try:
        with path.open("ab+") as journal:
            if journal.tell() and not _ends_a_line(journal):
                journal.write(b"\n")  # what an interruption left of a line stays by itself
            journal.write(json.dumps(sealed(value), ensure_ascii=False).encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error


def journal_values(path: Path, kind: type[T], *, error: type[ErdaError] = DataError) -> list[T | None]:
    """The values of a journal, if there is one; None for a line that is damaged or was cut short."""
    found: list[T | None] = []
    for line in read_bytes(path, error=error).splitlines() if path.exists() else ():
        try:
            found.append(decode_sealed(line, kind, place=str(path)))
        except DataError:
            found.append(None)
    return found


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
