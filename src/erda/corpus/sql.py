"""DuckDB connections for data larger than memory, and DuckDB's errors as errors of erda."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from erda.errors import DataError, WriteError
from erda.files import FULL

_FULL_TEXT = ("no space left", "file too large", "quota exceeded", "disk full", "out of disk")


def connect(
    file: Path | None = None, *, memory: str = "1GB", n_threads: int | None = None, spill: Path | None = None
) -> Any:
    """Connect to a DuckDB file, or to a database in memory. Data beyond `memory` spills to the folder `spill`."""
    import duckdb

    settings: dict[str, Any] = {"memory_limit": memory}
    if n_threads:
        settings["threads"] = n_threads
    if spill is not None:
        settings["temp_directory"] = str(spill)
    connection = duckdb.connect(str(file or ":memory:"), config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection


def check_folder(folder: Path) -> None:
    """Raise if the path of a folder is not UTF-8, which DuckDB cannot open."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise DataError(f"{folder}: the name is not valid UTF-8, so DuckDB cannot open it; use another name.") from None


def quoted(value: str | Path) -> str:
    """Quote a string for SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def file_list(paths: Sequence[Path]) -> str:
    """Quote paths as a SQL list, for `read_parquet`."""
    return "[" + ", ".join(quoted(path) for path in paths) + "]"


def is_full(error: Exception) -> bool:
    """Whether an error of the system or of DuckDB means that the disk is full."""
    return getattr(error, "errno", None) in FULL or any(text in str(error).lower() for text in _FULL_TEXT)


@contextmanager
def disk_faults(folder: Path, *, remedy: str = "Finished work is kept; run the same command again.") -> Iterator[None]:
    """Raise a full disk, and any other error of DuckDB or Arrow, as an error with a remedy."""
    import duckdb

    try:
        yield
    except (OSError, duckdb.Error) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        if is_full(error):
            raise WriteError(
                f"{folder}: the disk is full ({message}). Finished work is kept: free some space and run the same "
                "command again."
            ) from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise DataError(f"{folder}: out of memory ({message}); allow more with --memory.") from None
        raise DataError(f"{folder}: {message}. {remedy}") from None
