"""Sentences of a file, asked piece by piece: its size does not matter, and a kill costs one piece.

    OUT.partial/job.json     which file is read, which version answers, how much is asked for
    OUT.partial/rows.jsonl   the rows so far, whole pieces of them

The same command goes on after the last whole piece, so that the result is that of an unbroken one, byte for byte; of a
changed file or extractor it begins anew. OUT is written at the end, whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from erda.app.entities import Entities
from erda.app.inputs import check_text, example_of
from erda.app.tables import PlainRow, writer_for
from erda.app.version import TOP, Version
from erda.data.convert import refuse_input
from erda.data.dataset import Stamps, file_stamps
from erda.data.formats import Row
from erda.data.formats.brat import brat_files
from erda.data.own import OWN, format_of
from erda.errors import DataError, SettingsError, WriteError
from erda.files import cannot_write, locked, read_sealed, remove_unfinished, sealed, write_json
from erda.text.reading import Faults, opened, read_lines
from erda.types import Example

PIECE = 1024  # rows


@dataclass(frozen=True, slots=True)
class Asking:
    """A job: what is read, in which format, what answers, and how many ranked relations are wanted."""

    files: Stamps
    format: str
    version: dict[str, Any]
    top: int


@dataclass(frozen=True, slots=True)
class Predicted:
    """How many rows there are, of which a run before this one had left some, and where a row carries an `error`."""

    n_rows: int
    n_found: int
    faults: Faults


def predict_file(
    version: Version,
    path: Path,
    out: Path,
    *,
    format: str | None = None,
    top: int = TOP,
    tick: Callable[[int], object] = lambda line: None,
) -> Predicted:
    """Answer every row of a file (any of a user's own formats) in `out`: JSONL, CSV or Parquet, by its ending.

    `tick` hears which line was reached. A row that cannot be read has its fault in place of an answer.
    """
    write = writer_for(out)
    refuse_input(path, out)
    format = own_format(path, format)
    stamp = json.loads(json.dumps(asdict(version.state.stamp)))
    job = Asking(file_stamps([path, *(brat_files(path) if format == "brat" else ())]), format, stamp, top)
    folder = out.with_name(f"{out.name}.partial")
    with locked(folder, busy=f"another command is writing {out}"):
        remove_unfinished(out.parent, of=out.name)
        rows = folder / "rows.jsonl"
        n_found = _begin(folder / "job.json", job, rows)
        for piece in answer_pieces(version, _every_row(path, format), skip=n_found, top=top):
            _append(rows, piece)
            tick(piece[-1]["line"])
        write(out, _rows(rows))
        n_rows, faults = 0, Faults(path)
        for row in _rows(rows):
            n_rows += 1
            if row.get("error"):
                faults.add(row["line"], row["error"])
        shutil.rmtree(folder, ignore_errors=True)
    return Predicted(n_rows, n_found, faults)


def answer_pieces(version: Version, rows: Iterable[Row], *, skip: int = 0, top: int = TOP) -> Iterator[list[PlainRow]]:
    """Rows with their answers, piece by piece, after the first `skip` rows."""
    rest = islice(rows, skip, None)
    while piece := list(islice(rest, PIECE)):
        read = [_read(row) for row in piece]
        answers = iter(version.predict([one for one in read if isinstance(one, Example)], top=top))
        yield [
            {"id": None, "line": row.line, "error": f"{row.where}{one}"}
            if isinstance(one, str)
            else {"id": one.id, "line": row.line, **next(answers).to_json()}
            for row, one in zip(piece, read, strict=True)
        ]


class _Passed(Faults):
    """What a reader passes over, as rows in their places."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rows: list[Row] = []

    def add(self, line: int, message: str) -> None:
        self.rows.append(Row(line, partial(_refuse, message)))


def _every_row(path: Path, format: str) -> Iterator[Row]:
    """The rows of a file in its order, those too that cannot be read."""
    passed = _Passed(path)
    for row in chain(OWN[format][0](path, passed), [None]):
        yield from passed.rows
        passed.rows.clear()
        if row is not None:
            yield row


def _refuse(message: str) -> Example:
    raise DataError(message)


def _read(row: Row) -> Example | str:
    try:
        example = row.read()
        return example if isinstance(example, str) else example_of(example)
    except DataError as fault:
        return str(fault)


def print_answers(
    version: Version, path: Path, *, format: str | None = None, top: int = TOP, show: Callable[[PlainRow], object]
) -> None:
    """Show every row of a file with its answer; rows that cannot be read end it with a fault."""
    faults = Faults(path)
    for piece in answer_pieces(version, _every_row(path, own_format(path, format)), top=top):
        for row in piece:
            show(row)
            if row.get("error"):
                faults.add(row["line"], row["error"])
    faults.raise_if_any()


class ExtractedRows:
    """What holds between the entities of a text file, line by line; with `everything`, also pairs without.

    What was met is counted on the way; a line that is no text is a fault. `tick` hears which line was reached.
    """

    def __init__(self, version: Version, path: Path, entities: Entities = None, *, everything: bool = False) -> None:
        self.n_rows = self.n_entities = self.n_left_out = 0  # left out: pairs over the bound of a line
        self.faults = Faults(path)
        self.tick: Callable[[int], object] = lambda line: None
        self._version, self._entities, self._everything = version, entities, everything

    def __iter__(self) -> Iterator[PlainRow]:
        for number, line in read_lines(self.faults.path, self.faults):
            self.tick(number)
            if not line.strip():
                continue
            try:
                check_text(line, most=None)
            except DataError as fault:
                self.faults.add(number, str(fault))
                continue
            found = self._version.extract(line, self._entities, top=1)
            self.n_entities += found.n_entities
            self.n_left_out += found.n_left_out
            for answer in found.answers if self._everything else found.found:
                self.n_rows += 1
                yield {"line": number, "entities": found.tagger, **answer.to_json()}


def count_lines(path: Path) -> int:
    """The number of lines of a file, unpacked; 0 of a folder."""
    if path.is_dir():
        return 0
    with opened(path) as file:
        return sum(piece.count(b"\n") for piece in iter(partial(file.read, 1 << 20), b"")) + 1


def own_format(path: Path, format: str | None) -> str:
    """The format of a file that can be read row by row."""
    found = format_of(path, format)
    if found not in OWN:
        raise SettingsError(
            f"{path}: is '{found}', which is not read row by row; run first: erda data convert {path} --out OUT.jsonl"
        )
    return found


def _begin(place: Path, job: Asking, rows_file: Path) -> int:
    """How many rows an earlier run of the same job left; what another job left is removed."""
    with suppress(DataError):
        if read_sealed(place, Asking) == job:
            return _whole_pieces(rows_file)
    rows_file.unlink(missing_ok=True)
    write_json(place, sealed(job))
    return 0


def _whole_pieces(path: Path) -> int:
    """The number of rows in whole pieces; what is after them is cut off."""
    if not path.exists():
        return 0
    n_rows, end, at = 0, 0, 0
    with path.open("rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):  # cut short
                break
            at, n_rows = at + len(line), n_rows + 1
            end = end if n_rows % PIECE else at
        file.truncate(end)
    return n_rows - n_rows % PIECE


def _append(path: Path, rows: Iterable[PlainRow]) -> None:
    try:
        with path.open("ab") as file:
            file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(cannot_write(path, error)) from error


def _rows(path: Path) -> Iterator[PlainRow]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)
    except FileNotFoundError:  # no row at all
        return
    except ValueError:
        raise DataError(f"{path}: is damaged. Delete {path.parent} and give the same command again.") from None
