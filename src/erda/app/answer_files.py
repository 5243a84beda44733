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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from erda.answers import Pairs
from erda.app.entities import MOST_PAIRS, PairQuestions, find_tagger
from erda.app.inputs import MOST_CHARACTERS, example_of
from erda.app.texts import TextLine, TextRow, Unread, in_place, read_texts
from erda.app.version import TOP, Version
from erda.data.dataset import Stamps, file_stamps
from erda.data.formats.brat import brat_files
from erda.data.formats.csv_examples import CSV_END, csv_line
from erda.data.formats.row_collector import Rejected, RowReader, SourceRow
from erda.data.own_data import own_format, row_reader
from erda.errors import DataError, SettingsError, counted
from erda.files import SEAL, read_sealed, remove_own, remove_unfinished, sealed, whole_file, write_json, write_lines
from erda.outputs import (
    append_lines,
    refuse_existing,
    refuse_overwriting_input,
    remove_left_work,
    remove_work,
    work_folder,
)
from erda.text.names import NameTagger
from erda.text.reading import Faults, opened
from erda.types import Example

COLUMNS = ("id", "line", "text", "head", "tail", "relation", "confidence", "error")
PLACES = ("head_start", "head_end", "tail_start", "tail_end")
MENTIONS = ("head_resolved", "tail_resolved", "head_type", "tail_type")  # the name a pronoun stands for; its type
TEXT_COLUMNS = (*COLUMNS[:5], *PLACES, *MENTIONS, *COLUMNS[5:])  # of answers about plain text
_GROUP = 1 << 16  # rows per row group of a Parquet file
PlainRow = dict[str, Any]
Rows = Callable[[], Iterable[PlainRow]]  # can be read several times
Writer = Callable[[Path, Rows, Sequence[str]], None]  # the last are the columns of a table
INPUT = "input"


def writer_for(out: Path) -> Writer:
    """Select the writer by the ending of the file name."""
    for ending, writer in WRITERS.items():
        if out.name.endswith(ending):
            if writer is _write_parquet and find_spec("pyarrow") is None:
                raise SettingsError(
                    f"--out {out}: Parquet needs pyarrow: pip install pyarrow. Or write .csv or .jsonl."
                )
            return writer
    raise SettingsError(f"--out {out}: expected a name that ends in {', '.join(WRITERS)}.")


def rows_for(out: Path, rows: Rows) -> Rows:
    """The rows of a file: a table has one for each relation of a pair."""
    if out.name.endswith((".jsonl", ".jsonl.gz")):
        return rows
    return lambda: (one for row in rows() for one in by_relation(row))


def json_line(row: PlainRow) -> str:
    """Convert a row to one line of ASCII JSON."""
    return json.dumps(row)


def by_relation(row: PlainRow) -> Iterator[PlainRow]:
    """Yield a row for each relation that holds, with its confidence; the row itself if there are not several."""
    if "relations" not in row:
        yield row
        return
    confidences = {one["relation"]: one["confidence"] for one in row["ranked"]}
    for relation in row["relations"]:
        yield row | {"relation": relation, "confidence": confidences[relation]}


def _write_jsonl(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    write_lines(out, (json.dumps(row, ensure_ascii=False) for row in rows()))


def _write_csv(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    write_lines(out, map(csv_line, _cells(map(_flat, rows()), (*columns, *_input_columns(rows)))), end=CSV_END)


def _input_columns(rows: Rows) -> list[str]:
    """The columns of the input in the order of their first occurrence."""
    return list(dict.fromkeys(f"{INPUT}_{name}" for row in rows() for name in row.get(INPUT, ())))


def _flat(row: PlainRow) -> PlainRow:
    """A row with the fields of the input as columns."""
    given = row.get(INPUT, {})
    return row | {
        f"{INPUT}_{name}": one if one is None or isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for name, one in given.items()
    }


def _cells(rows: Iterable[PlainRow], columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    yield tuple(columns)
    for row in rows:
        yield tuple("" if row.get(name) is None else row[name] for name in columns)


def _write_parquet(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {**dict.fromkeys(("line", *PLACES), pa.int64()), "confidence": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in (*columns, *_input_columns(rows))])
    rest = map(_flat, rows())
    with whole_file(out) as temporary, pq.ParquetWriter(temporary, schema) as file:
        while group := list(islice(rest, _GROUP)):
            file.write_table(pa.Table.from_pylist(group, schema=schema))


WRITERS: dict[str, Writer] = {
    ".jsonl": _write_jsonl,
    ".jsonl.gz": _write_jsonl,
    ".csv": _write_csv,
    ".csv.gz": _write_csv,
    ".parquet": _write_parquet,
}


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


PIECE = 1024  # questions or lines per piece
Ask = Callable[[TextRow], PairQuestions]


# -- what is asked -----------------------------------------------------------------------------------------------------


def ask_rows(
    version: Version,
    path: Path,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    top: int = TOP,
    min_confidence: float | None = None,
) -> Asking:
    """Answer every row of a file in any of a user's own formats; `columns` as in `read_examples`."""
    format = own_format(path, format, columns)
    files = (path, *(brat_files(path) if format == "brat" else ()))
    job = _job(version, files, format=format, columns=dict(columns or {}), top=top, min_confidence=min_confidence)
    reader = row_reader(format, columns)
    return Asking(path, files, job, partial(_answer_rows, version, path, rows_of=reader, top=top, least=min_confidence))


def ask_text(
    version: Version,
    path: Path,
    names: Mapping[str, str | None] | None = None,
    *,
    pairs: Pairs = "likelier",
    pronouns: bool = True,
    min_confidence: float | None = None,
    columns: Mapping[str, str] | None = None,
) -> Asking:
    """Extract relations from a text, line by line; without `names`, entities are found as in `Version.extract`.

    Files whose names end in .jsonl hold objects (`TextRow`), those in .csv a column `text`, or that of `columns`.
    """
    tagger = NameTagger(names) if names else None
    found_by = hashlib.sha256(json.dumps([*names.items()]).encode()).hexdigest() if names else find_tagger().name
    asked = {"pairs": pairs, "pronouns": pronouns, "min_confidence": min_confidence, "columns": dict(columns or {})}
    job = _job(version, [path], entities=found_by, **asked)

    def ask(row: TextRow) -> PairQuestions:
        marks = row.marks()
        return version.questions(row.text, tagger if marks is None else marks, pronouns=pronouns)

    read = partial(read_texts, path, columns=columns)
    answer = partial(_answer_text, version, read, ask=ask, pairs=pairs, least=min_confidence)
    return Asking(path, (path,), job, answer, TEXT_COLUMNS)


def _job(version: Version, files: Iterable[Path], **asked: Any) -> AnswerJob:
    return AnswerJob(file_stamps(files), json.loads(json.dumps(asdict(version.state.stamp))), asked)


def _answer_rows(
    version: Version, path: Path, skip: int, *, rows_of: RowReader, top: int, least: float | None
) -> Iterator[Piece]:
    rest = islice(in_place(path, partial(rows_of, path)), skip, None)
    while piece := [
        (*_read(row), _given({} if isinstance(row, Unread) else row.columns())) for row in islice(rest, PIECE)
    ]:
        asked = [one for _, one, _ in piece if isinstance(one, Example)]
        answers = iter(version.predict(asked, top=top, min_confidence=least))
        rows: list[PlainRow] = [
            {"id": one.id, **asdict(one), **given}
            if isinstance(one, Unread)
            else {"id": one.id, "line": line, **next(answers).to_json(), **given}
            for line, one, given in piece
        ]
        skip += len(piece)
        yield Piece(rows, skip, piece[-1][0])


def _given(columns: Mapping[str, Any]) -> PlainRow:
    """The fields of the input row, for the output; none if they are so long that they would fill the disk."""
    return {INPUT: columns} if columns and len(json.dumps(columns)) <= MOST_CHARACTERS else {}


def _read(row: SourceRow | Unread) -> tuple[int, Example | Unread]:
    if isinstance(row, Unread):
        return row.line, row
    try:
        example = row.read()
        if isinstance(example, Rejected):
            example = example.example
        if not isinstance(example, str):
            return row.line, example_of(example)
        fault = example
    except DataError as error:
        fault = str(error)
    return row.line, Unread(row.line, f"{row.where}{fault}", row.id())


@dataclass(frozen=True, slots=True)
class AskedLine:
    """The questions of a line of text, or the reason why there are none."""

    line: int
    row: TextRow
    questions: PairQuestions | None
    error: str = ""
    columns: dict[str, Any] = field(default_factory=dict)


def _answer_text(
    version: Version,
    read: Callable[..., Iterator[TextLine]],
    skip: int,
    *,
    ask: Ask,
    pairs: Pairs,
    least: float | None,
) -> Iterator[Piece]:
    asked, size = list[AskedLine](), 0
    for line in read(skip=skip):
        asked.append(_asked(line, ask))
        size += 1 + (len(questions.examples) if (questions := asked[-1].questions) else 0)
        if size >= PIECE:
            yield _text_piece(version, asked, pairs, least)
            asked, size = [], 0
    if asked:
        yield _text_piece(version, asked, pairs, least)


def _asked(line: TextLine, ask: Ask) -> AskedLine:
    if line.error:
        return AskedLine(line.line, line.row, None, line.error, line.columns)
    try:
        return AskedLine(line.line, line.row, ask(line.row), columns=line.columns)
    except DataError as fault:
        return AskedLine(line.line, line.row, None, str(fault), line.columns)


def _text_piece(version: Version, asked: list[AskedLine], pairs: Pairs, least: float | None) -> Piece:
    texts = [own.questions for own in asked if own.questions]
    extractions = iter(version.answer_texts(texts, top=1, min_confidence=least))
    rows, n_entities, taggers = list[PlainRow](), 0, set[str]()
    for own in asked:
        place: PlainRow = {"id": own.row.id, "line": own.line}
        given = _given(own.columns)
        if own.questions is None:
            rows.append({**place, "error": own.error, **given})
            continue
        text = own.row.text if len(own.row.text) <= MOST_CHARACTERS else None  # else a long line fills the disk
        found = next(extractions)
        for one in found.kept(pairs):
            answer = one.to_json()
            sentence = {"text": text, "sentence": answer["text"]}
            rows.append({**place, "entities": found.tagger, **answer, **sentence, **given})
        n_entities += found.n_entities
        taggers.add(found.tagger)
        if found.n_left_out:
            n_pairs = counted(found.n_left_out, "pair")
            error = f"{n_pairs} of entities left out: a line may have at most {MOST_PAIRS:,}; split it."
            rows.append({**place, "error": error, **given})
    return Piece(rows, asked[-1].line, asked[-1].line, n_entities, frozenset(taggers))


def count_lines(path: Path) -> int:
    """Count the lines of a file after decompression; a folder has 0."""
    if path.is_dir():
        return 0
    with opened(path) as file:
        return sum(piece.count(b"\n") for piece in iter(partial(file.read, 1 << 20), b"")) + 1
