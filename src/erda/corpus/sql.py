"""DuckDB, set up for work that may be larger than memory, and its faults in our words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from erda.errors import DataError, WriteError
from erda.files import FULL

_FULL_TEXT = ("no space left", "file too large", "quota exceeded", "disk full", "out of disk")


def connect(*, memory: str = "1GB", n_threads: int | None = None, spill: Path | None = None) -> Any:
    """A DuckDB connection in memory that spills to `spill` when `memory` is used up."""
    import duckdb

    settings: dict[str, Any] = {"memory_limit": memory}
    if n_threads:
        settings["threads"] = n_threads
    if spill is not None:
        settings["temp_directory"] = str(spill)
    connection = duckdb.connect(config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection


def quoted(value: str | Path) -> str:
    """A string as SQL writes it."""
    return "'" + str(value).replace("'", "''") + "'"


def file_list(paths: Sequence[Path]) -> str:
    """Paths as a SQL list, for `read_parquet`."""
    return "[" + ", ".join(quoted(path) for path in paths) + "]"


@contextmanager
def disk_faults(folder: Path) -> Iterator[None]:
    """Turn a full disk, and whatever else stops DuckDB or Arrow, into a fault that says what to do."""
    import duckdb

    try:
        yield
    except (OSError, duckdb.Error) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        if getattr(error, "errno", None) in FULL or any(text in str(error).lower() for text in _FULL_TEXT):
            raise WriteError(
                f"{folder}: the disk is full ({message}). What was finished is kept: free some space and run the same "
                "command again."
            ) from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise DataError(f"{folder}: out of memory ({message}); allow more with --memory.") from None
        raise DataError(f"{folder}: {message}. What was finished is kept; run the same command again.") from None
