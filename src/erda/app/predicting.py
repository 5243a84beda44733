"""Sentences or texts of a file, asked piece by piece: its size does not matter, and a kill costs one piece.

    OUT.partial/job.json     which file is read, which version answers, what is asked for
    OUT.partial/rows.jsonl   the rows so far; a number after each piece: how much of the file is behind it

The same command goes on after the last whole piece, so that the result is that of an unbroken one, byte for byte; of a
changed file or extractor it begins anew. OUT is written at the end, whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from erda.app.answers import Answer, Extraction
from erda.app.entities import installed_pipeline
from erda.app.inputs import check_text, example_of
from erda.app.tables import PlainRow, writer_for
from erda.app.version import MOST_PAIRS, TOP, Questions, Version
from erda.data.dataset import Stamps, file_stamps
from erda.data.formats import Row
from erda.data.formats.brat import brat_files
from erda.data.own import OWN, format_of
from erda.errors import DataError, SettingsError, WriteError, counted
from erda.files import cannot_write, locked, read_sealed, refuse_input, remove_unfinished, sealed, write_json
from erda.text.names import NameTagger
from erda.text.reading import Faults, opened, read_lines
from erda.types import Example

PIECE = 1024  # questions, or lines
# of entities: related ones in their likelier direction or in both; every one
Pairs = Literal["likelier", "both", "all"]
KEPT: dict[Pairs, Callable[[Extraction], tuple[Answer, ...]]] = {
    "likelier": lambda found: found.found,
    "both": lambda found: found.found_both_ways,
    "all": lambda found: found.answers,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """What is read, what answers, and what it is asked for."""

    files: Stamps
    version: dict[str, Any]
    asked: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are written at once, how much of the file is read with them (rows or lines), and up to which line."""

    rows: list[PlainRow]
    n_read: int
    line: int


@dataclass(frozen=True, slots=True)
class Asking:
    """A file of which a version is asked; `pieces` are the answers after those to what was read before."""

    path: Path
    job: Job
    pieces: Callable[[int], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class Answered:
    """How many rows there are, of which a run before this one had left some, and where a row carries an `error`."""

    n_rows: int
    n_found: int
    faults: Faults


@dataclass(frozen=True, slots=True)
class Unread:
    """A row or line that cannot be read, and why."""

    line: int
    error: str


# -- what is asked -----------------------------------------------------------------------------------------------------


def ask_rows(version: Version, path: Path, *, format: str | None = None, top: int = TOP) -> Asking:
    """The relation of every row of a file (any of a user's own formats) is asked; each row has its answer."""
    format = own_format(path, format)
    files = [path, *(brat_files(path) if format == "brat" else ())]
    job = _job(version, files, format=format, top=top)
    return Asking(path, job, partial(_answer_rows, version, path, format, top))


def ask_text(
    version: Version, path: Path, names: Mapping[str, str | None] | None = None, *, pairs: Pairs = "likelier"
) -> Asking:
    """The relations between the entities of a text are asked, line by line; entities are those named, or are found."""
    tagger = NameTagger(names) if names else None
    found_by = hashlib.sha256(json.dumps([*names.items()]).encode()).hexdigest() if names else installed_pipeline()
    job = _job(version, [path], entities=found_by, pairs=pairs)
    return Asking(path, job, partial(_answer_text, version, path, tagger, pairs))


def _job(version: Version, files: Iterable[Path], **asked: Any) -> Job:
    return Job(file_stamps(files), json.loads(json.dumps(asdict(version.state.stamp))), asked)


def _answer_rows(version: Version, path: Path, format: str, top: int, skip: int) -> Iterator[Piece]:
    rest = islice(_in_place(path, partial(OWN[format][0], path)), skip, None)
    while piece := [_read(row) for row in islice(rest, PIECE)]:
        answers = iter(version.predict([one for _, one in piece if isinstance(one, Example)], top=top))
        rows: list[PlainRow] = [
            {"id": None, **asdict(one)}
            if isinstance(one, Unread)
            else {"id": one.id, "line": line, **next(answers).to_json()}
            for line, one in piece
        ]
        skip += len(piece)
        yield Piece(rows, skip, piece[-1][0])


def _read(row: Row | Unread) -> tuple[int, Example | Unread]:
    if isinstance(row, Unread):
        return row.line, row
    try:
        example = row.read()
        if not isinstance(example, str):
            return row.line, example_of(example)
        fault = example
    except DataError as error:
        fault = str(error)
    return row.line, Unread(row.line, f"{row.where}{fault}")


def _answer_text(version: Version, path: Path, tagger: NameTagger | None, pairs: Pairs, skip: int) -> Iterator[Piece]:
    asked, size = list[tuple[int, Questions | Unread]](), 0
    for number, questions in _questions(version, path, tagger, skip):
        asked.append((number, questions))
        size += 1 if isinstance(questions, Unread) else 1 + len(questions.examples)
        if size >= PIECE:
            yield Piece(_text_rows(version, asked, pairs), number, number)
            asked, size = [], 0
    if asked:
        yield Piece(_text_rows(version, asked, pairs), asked[-1][0], asked[-1][0])


def _questions(
    version: Version, path: Path, tagger: NameTagger | None, skip: int
) -> Iterator[tuple[int, Questions | Unread]]:
    """What is asked of each line of a text, with its number."""
    for line in _in_place(path, partial(read_lines, path, skip=skip)):
        if isinstance(line, Unread):
            yield line.line, line
            continue
        number, text = line
        try:
            check_text(text, most=None)
        except DataError as fault:
            yield number, Unread(number, str(fault))
            continue
        if text.strip():
            yield number, version.questions(text, tagger)


def _text_rows(version: Version, asked: list[tuple[int, Questions | Unread]], pairs: Pairs) -> list[PlainRow]:
    examples = [one for _, own in asked if isinstance(own, Questions) for one in own.examples]
    answers = iter(version.predict(examples, top=1))
    rows: list[PlainRow] = []
    for number, own in asked:
        if isinstance(own, Unread):
            rows.append(asdict(own))
            continue
        found = own.answered(islice(answers, len(own.examples)))
        rows += [{"line": number, "entities": found.tagger, **one.to_json()} for one in KEPT[pairs](found)]
        if own.n_left_out:
            n_pairs = counted(own.n_left_out, "pair")
            error = f"{n_pairs} of entities left out: a line is asked about {MOST_PAIRS:,}; cut it."
            rows.append({"line": number, "error": error})
    return rows


class _Passed(Faults):
    """What a reader passes over."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.met: list[Unread] = []

    def add(self, line: int, message: str) -> None:
        self.met.append(Unread(line, message))


def _in_place(path: Path, read: Callable[[Faults], Iterator[T]]) -> Iterator[T | Unread]:
    """What a reader gives, and in its place what it passes over."""
    passed = _Passed(path)
    for one in chain(read(passed), [None]):
        yield from passed.met
        passed.met.clear()
        if one is not None:
            yield one


def own_format(path: Path, format: str | None) -> str:
    """The format of a file that can be read row by row."""
    found = format_of(path, format)
    if found not in OWN:
        raise SettingsError(
            f"{path}: is '{found}', which is not read row by row; run first: erda data convert {path} --out OUT.jsonl"
        )
    return found


# -- where the answers go ----------------------------------------------------------------------------------------------


def show_answers(asking: Asking, show: Callable[[PlainRow], object]) -> Answered:
    """Show every row."""
    n_rows, faults = 0, Faults(asking.path)
    for piece in asking.pieces(0):
        for row in piece.rows:
            show(row)
            n_rows += _counted(row, faults)
    return Answered(n_rows, 0, faults)


def write_answers(asking: Asking, out: Path, *, tick: Callable[[int], object] = lambda line: None) -> Answered:
    """Write every row into `out`: JSONL, CSV or Parquet, by its ending. `tick` hears which line was reached."""
    write = writer_for(out)
    refuse_input(out, asking.path)
    folder = out.with_name(f"{out.name}.partial")
    with locked(folder, busy=f"another command is writing {out}"):
        remove_unfinished(out.parent, of=out.name)
        rows, faults = folder / "rows.jsonl", Faults(asking.path)
        n_read, n_found = _begin(folder / "job.json", asking.job, rows)
        for piece in asking.pieces(n_read):
            _append(rows, [*piece.rows, piece.n_read])
            tick(piece.line)
        write(out, _rows(rows))
        n_rows = sum(_counted(row, faults) for row in _rows(rows))
        shutil.rmtree(folder, ignore_errors=True)
    return Answered(n_rows, n_found, faults)


def _counted(row: PlainRow, faults: Faults) -> int:
    if row.get("error"):
        faults.add(row["line"], row["error"])
    return 1


def _begin(place: Path, job: Job, rows_file: Path) -> tuple[int, int]:
    """How much an earlier run of the same job read, and how many rows it left; what another job left is removed."""
    with suppress(DataError):
        if read_sealed(place, Job) == job:
            return _whole_pieces(rows_file)
    rows_file.unlink(missing_ok=True)
    write_json(place, sealed(job))
    return 0, 0


def _whole_pieces(path: Path) -> tuple[int, int]:
    """What was read for the whole pieces, and their rows; what is after them is cut off."""
    if not path.exists():
        return 0, 0
    n_read = n_whole = n_rows = end = at = 0
    with path.open("rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):  # cut short
                break
            at += len(line)
            if line.strip().isdigit():
                n_read, n_whole, end = int(line), n_rows, at
            else:
                n_rows += 1
        file.truncate(end)
    return n_read, n_whole


def _append(path: Path, rows: Iterable[PlainRow | int]) -> None:
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
            yield from (row for row in map(json.loads, file) if isinstance(row, dict))
    except FileNotFoundError:  # no row at all
        return
    except ValueError:
        raise DataError(f"{path}: is damaged. Delete {path.parent} and give the same command again.") from None


def count_lines(path: Path) -> int:
    """The number of lines of a file, unpacked; 0 of a folder."""
    if path.is_dir():
        return 0
    with opened(path) as file:
        return sum(piece.count(b"\n") for piece in iter(partial(file.read, 1 << 20), b"")) + 1
