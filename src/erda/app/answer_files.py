"""Write the answers of a file piece by piece: memory stays constant, and a kill costs one piece.

    OUT.partial/job.json     the files that are read, the version that answers, the options
    OUT.partial/rows.jsonl   the rows so far; after each piece `[n_read, sha256]`: how much of the file it covers, and
                             a digest of the job and of all rows up to here

The same command resumes after the last valid piece, so the result equals that of an uninterrupted run, byte for byte.
If a file or the extractor has changed, it starts from the beginning. OUT is written at the end, in one step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.app.answer_tables import COLUMNS, PlainRow, rows_for, writer_for
from erda.data.dataset import Stamps
from erda.errors import DataError
from erda.files import SEAL, read_sealed, remove_own, remove_unfinished, sealed, write_json
from erda.outputs import (
    append_lines,
    refuse_existing,
    refuse_overwriting_input,
    remove_left_work,
    remove_work,
    work_folder,
)
from erda.text.reading import Faults

JOB, ROWS = "job.json", "rows.jsonl"


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """`job.json`: the files that are read, the version that answers, the options."""

    files: Stamps
    version: dict[str, Any]
    asked: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are written together, the number of input rows or lines read so far, and the current line."""

    rows: list[PlainRow]
    n_read: int
    line: int
    n_entities: int = 0  # found in plain text
    taggers: frozenset[str] = frozenset()  # that found them


@dataclass(frozen=True, slots=True)
class Asking:
    """A file to answer and all files read; `pieces(n_read)` yields the answers after the first `n_read` rows."""

    path: Path
    inputs: tuple[Path, ...]
    job: AnswerJob
    pieces: Callable[[int], Iterator[Piece]]
    columns: tuple[str, ...] = COLUMNS  # of CSV and Parquet


@dataclass(frozen=True, slots=True)
class Answered:
    """The number of rows, those found from an earlier run, and the rows that carry an `error`.

    `n_entities` counts the entities of plain text that this run read, and `taggers` found them (`Extraction.tagger`).
    """

    n_rows: int
    n_found: int
    faults: Faults
    n_entities: int = 0
    taggers: frozenset[str] = frozenset()


def show_answers(asking: Asking, show: Callable[[PlainRow], object]) -> Answered:
    """Show every row."""
    n_rows, n_entities, taggers, faults = 0, 0, set[str](), Faults(asking.path)
    for piece in asking.pieces(0):
        n_entities += piece.n_entities
        taggers |= piece.taggers
        for row in piece.rows:
            show(row)
            n_rows += _counted(row, faults)
    return Answered(n_rows, 0, faults, n_entities, frozenset(taggers))


def write_answers(
    asking: Asking,
    out: Path,
    *,
    inputs: Iterable[Path | int] = (),
    overwrite: bool = False,
    tick: Callable[[int], object] = lambda line: None,
) -> Answered:
    """Write every row to `out` as JSONL, CSV or Parquet, depending on its ending. `tick` receives the current line.

    `inputs` are further files that were read; none of them can be `out`. An existing `out` needs `overwrite`, except
    when an interrupted run of the same job is resumed.
    """
    write = writer_for(out)
    refuse_overwriting_input(out, *asking.inputs, *inputs)
    folder = out.with_name(f"{out.name}.partial")
    is_own, may_replace = (JOB, ROWS).__contains__, overwrite or _is_job(folder / JOB, asking.job)
    if out.exists() and not may_replace:
        remove_left_work(folder, is_own)  # of a command that was killed after its last step
    refuse_existing(out, overwrite=may_replace)
    with work_folder(folder, purpose="answers", busy=f"another command is writing {out}"):
        remove_unfinished(out.parent, of=out.name)
        remove_left_work(folder, is_own)
        rows, faults = folder / ROWS, Faults(asking.path)
        found = _begin(folder / JOB, asking.job, rows)
        digest, n_entities, taggers = found.digest, 0, set[str]()
        for piece in asking.pieces(found.n_read):
            digest = _append(rows, piece, digest)
            n_entities += piece.n_entities
            taggers |= piece.taggers
            tick(piece.line)
        each = rows_for(out, lambda: _rows(rows))
        write(out, each, asking.columns)
        n_rows = sum(_counted(row, faults) for row in each())
        remove_work(folder, is_own)
    return Answered(n_rows, found.n_rows, faults, n_entities, frozenset(taggers))


def _counted(row: PlainRow, faults: Faults) -> int:
    if row.get("error"):
        faults.add(row["line"], row["error"])
    return 1


@dataclass(frozen=True, slots=True)
class _Found:
    """The valid pieces of an earlier run: the amount of input they cover, their rows and their digest."""

    n_read: int
    n_rows: int
    digest: str


def _begin(place: Path, job: AnswerJob, rows: Path) -> _Found:
    """Find the valid pieces of an earlier run of the same job; remove the rows of another job."""
    start = _Found(0, 0, sealed(job)[SEAL])
    if _is_job(place, job):
        return _valid_pieces(rows, start)
    remove_own(rows)
    write_json(place, sealed(job))
    return start


def _is_job(place: Path, job: AnswerJob) -> bool:
    """Whether an interrupted run of the same job left its description here."""
    with suppress(DataError):
        return read_sealed(place, AnswerJob) == job
    return False


def _valid_pieces(path: Path, found: _Found) -> _Found:
    """Read pieces while their digests are valid, and truncate the rest."""
    if not path.exists():
        return found
    content, n_rows, at, end = list[bytes](), found.n_rows, 0, 0
    with path.open("rb+") as file:
        for line in file:
            at += len(line)
            if not line.startswith(b"["):  # a row is an object
                content.append(line)
                n_rows += 1
                continue
            n_read = int(number) if (number := line[1:20].partition(b",")[0]).isdigit() else 0
            digest = _digest(found.digest, content, n_read)
            if line != _end_of_piece(n_read, digest):
                break
            found, content, end = _Found(n_read, n_rows, digest), [], at
        file.truncate(end)
    return found


def _append(path: Path, piece: Piece, before: str) -> str:
    """Append a piece and sync it to disk; return the digest of all rows so far."""
    content = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in piece.rows]
    digest = _digest(before, content, piece.n_read)
    append_lines(path, b"".join((*content, _end_of_piece(piece.n_read, digest))))
    return digest


def _digest(before: str, content: Iterable[bytes], n_read: int) -> str:
    return hashlib.sha256(b"".join((before.encode(), *content, str(n_read).encode()))).hexdigest()


def _end_of_piece(n_read: int, digest: str) -> bytes:
    return json.dumps([n_read, digest]).encode() + b"\n"


def _rows(path: Path) -> Iterator[PlainRow]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from (row for row in map(json.loads, file) if isinstance(row, dict))
    except FileNotFoundError:  # there are no rows
        return
    except ValueError:
        raise DataError(f"{path}: is damaged. Delete {path.parent} and run the same command again.") from None
