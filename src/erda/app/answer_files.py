"""Answer a file of sentences or texts, batch by batch, and write the answers, in constant memory.

JSONL has all fields; CSV and Parquet have fixed columns, then those of the input; graphs are those of `erda.graph`. A
pair with several relations is one line of JSONL and one row of a table per relation. The fields of an input row are an
object `input` in JSONL and columns `input_NAME` in tables, where a value other than text is written as JSON.

The rows are collected in an unnamed file, and OUT is written at the end, in one step. Ctrl-C writes the rows so far to
NAME.partial.csv beside OUT, which stays as it is; a kill leaves nothing, or one temporary file that the next start
removes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event
from typing import Any, TypeVar

from erda.answers import Pairs, by_relation
from erda.app.entities import Entities
from erda.app.inputs import example_of
from erda.app.questions import PairQuestions, PlainRow, rows_of_line
from erda.app.texts import TextLine, Unread, in_place, read_texts
from erda.app.version import TOP, Version
from erda.data.formats.annotation_tools import brat_files
from erda.data.formats.csv_examples import CSV_END, MOST_ROWS, csv_line, without_formula
from erda.data.formats.row_collector import Rejected, RowReader, SourceRow
from erda.data.own_data import own_format
from erda.encoders.contract import sharing, watched
from erda.encoders.onnx_encoder import available_threads
from erda.errors import DataError, SettingsError, WriteError, require
from erda.files import cannot_write, check_output, refuse_existing, whole_file, write_bytes, write_lines
from erda.graph import FORMATS, Aliases, graph_file
from erda.text.marks import MOST_CHARACTERS
from erda.text.names import NameTagger
from erda.text.reading import Faults, opened
from erda.types import Example

BATCH = 1024  # lines that are answered together
CHARACTERS = 5_000  # of texts that are tagged and answered together on one core: half a second
COLUMNS = ("id", "line", "text", "head", "tail", "relation", "confidence", "error")
PLACES = ("head_start", "head_end", "tail_start", "tail_end")
MENTIONS = ("head_resolved", "tail_resolved", "head_type", "tail_type")  # the name a pronoun stands for; its type
TEXT_COLUMNS = (*COLUMNS[:5], *PLACES, *MENTIONS, *COLUMNS[5:])  # of answers about plain text
INPUT = "input"
_GROUP = 1 << 16  # rows per row group of a Parquet file
Asked = tuple[TextLine, PairQuestions | str]  # a line with its questions or its error
Batch = TypeVar("Batch")
Answered = TypeVar("Answered")
Writer = Callable[[Path, Iterable[PlainRow], Sequence[str]], None]  # the last are the columns of a table


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """Rows of output, and the line of the input that they reach."""

    rows: list[PlainRow]
    line: int
    n_entities: int = 0  # found in plain text
    taggers: frozenset[str] = frozenset()  # that found them


@dataclass(frozen=True, slots=True)
class FileQuestions:
    """A file to answer, all files that are read, and the answers."""

    path: Path
    inputs: tuple[Path, ...]
    batches: Callable[[], Iterator[AnswerBatch]]
    columns: tuple[str, ...] = COLUMNS  # of CSV and Parquet


@dataclass(slots=True)
class AnswerCounts:
    """The number of rows, and the rows that carry an `error`.

    `n_entities` counts the entities of plain text, and `taggers` found them (`Extraction.tagger`).
    """

    faults: Faults
    n_rows: int = 0
    n_entities: int = 0
    taggers: set[str] = field(default_factory=set)
    partial: Path | None = None  # holds the rows so far, after Ctrl-C

    def add(self, batch: AnswerBatch, rows: Iterable[PlainRow]) -> None:
        """Count a batch, as the `rows` of the output."""
        self.n_entities += batch.n_entities
        self.taggers |= batch.taggers
        for row in rows:
            self.n_rows += 1
            if row.get("error"):
                self.faults.add(row["line"], row["error"])


def show_answers(questions: FileQuestions, show: Callable[[PlainRow], object]) -> AnswerCounts:
    """Show every row."""
    counts = AnswerCounts(Faults(questions.path))
    for batch in questions.batches():
        counts.add(batch, batch.rows)
        for row in batch.rows:
            show(row)
    return counts


def write_answers(
    questions: FileQuestions,
    out: Path,
    *,
    inputs: Iterable[Path | int] = (),
    overwrite: bool = False,
    aliases: Aliases | None = None,
    tick: Callable[[int], object] = lambda line: None,
) -> AnswerCounts:
    """Write every row to `out` as its ending says (`WRITERS`). `tick` receives the current line.

    `inputs` are further files that were read; none of them can be `out`. An existing `out` needs `overwrite`. `aliases`
    are those of a graph. Ctrl-C ends the answers: the rows so far are written to a file beside `out`.
    """
    (ending, write), is_table = writer_for(out, aliases), not out.name.endswith((".jsonl", ".jsonl.gz"))
    check_output(out, *questions.inputs, *inputs, overwrite=overwrite)
    counts, columns = AnswerCounts(Faults(questions.path)), dict.fromkeys(questions.columns)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out.parent) as file:
            try:
                for batch in questions.batches():
                    rows = [one for row in batch.rows for one in by_relation(row)] if is_table else batch.rows
                    file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
                    counts.add(batch, rows)
                    columns |= {f"{INPUT}_{name}": None for row in rows for name in row.get(INPUT, ())}
                    tick(batch.line)
            except KeyboardInterrupt:  # it can cut the last rows short
                counts.partial = out.with_name(f"{out.name.removesuffix(ending)}.partial{ending}")
            if counts.n_rows or not counts.partial:
                refuse_existing(out, overwrite=overwrite or bool(counts.partial))  # another command may have written it
                file.seek(0)
                write(counts.partial or out, map(json.loads, islice(file, counts.n_rows)), tuple(columns))
    except OSError as error:
        raise WriteError(cannot_write(out, error)) from error
    return counts


# -- output ------------------------------------------------------------------------------------------------------------


def writer_for(out: Path, aliases: Aliases | None = None) -> tuple[str, Writer]:
    """Select the writer by the ending of the file name; return both. `aliases` are those of a graph."""
    if (format := out.suffix[1:]) in FORMATS:
        require("networkx", "rdflib")
        return out.suffix, lambda out, rows, columns: write_bytes(out, graph_file(rows, format, aliases))
    if aliases:
        raise SettingsError(f"--aliases: only a graph has them; {out} must end in .{', .'.join(FORMATS)}.")
    for ending, writer in WRITERS.items():
        if out.name.endswith(ending):
            needed = {".parquet": "pyarrow", ".xlsx": "openpyxl"}.get(ending)
            if needed and find_spec(needed) is None:
                raise SettingsError(f"--out {out}: needs {needed}: pip install {needed}. Or write .csv or .jsonl.")
            return ending, writer
    raise SettingsError(f"--out {out}: expected a name that ends in {', '.join(WRITERS)}, .{', .'.join(FORMATS)}.")


def _write_jsonl(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    write_lines(out, (json.dumps(row, ensure_ascii=False) for row in rows))


def _write_csv(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    flat = map(_flat, rows)
    cells = (tuple("" if row.get(name) is None else row[name] for name in columns) for row in flat)
    write_lines(out, map(csv_line, chain([tuple(columns)], cells)), end=CSV_END)


def _flat(row: PlainRow) -> PlainRow:
    """A row with the fields of the input as columns."""
    return row | {
        f"{INPUT}_{name}": one if one is None or isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for name, one in row.get(INPUT, {}).items()
    }


def _write_parquet(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {**dict.fromkeys(("line", *PLACES), pa.int64()), "confidence": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    rest = map(_flat, rows)
    with whole_file(out) as temporary, pq.ParquetWriter(temporary, schema) as file:
        while group := list(islice(rest, _GROUP)):
            file.write_table(pa.Table.from_pylist(group, schema=schema))


def _write_excel(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    from openpyxl import Workbook
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    book = Workbook(write_only=True)  # streams to disk
    sheet = book.create_sheet("answers")
    for number, row in enumerate(chain([dict(zip(columns, columns, strict=True))], map(_flat, rows)), 1):
        if number > MOST_ROWS:
            raise DataError(f"{out}: a sheet holds at most {MOST_ROWS:,} rows; write .csv or .parquet.")
        cells = (row.get(name) for name in columns)
        plain = (without_formula(ILLEGAL_CHARACTERS_RE.sub(" ", one)) if isinstance(one, str) else one for one in cells)
        sheet.append(list(plain))
    with whole_file(out) as temporary:
        book.save(temporary)


WRITERS: dict[str, Writer] = {
    ".jsonl": _write_jsonl,
    ".jsonl.gz": _write_jsonl,
    ".csv": _write_csv,
    ".csv.gz": _write_csv,
    ".parquet": _write_parquet,
    ".xlsx": _write_excel,
}


# -- questions ---------------------------------------------------------------------------------------------------------


def ask_rows(
    version: Version,
    path: Path,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    top: int = TOP,
    min_confidence: float | None = None,
) -> FileQuestions:
    """Answer every row of a file in any of a user's own formats; `columns` as in `read_examples`."""
    found = own_format(path, format, columns)
    files = (path, *(brat_files(path) if found.name == "brat" else ()))
    return FileQuestions(path, files, partial(_answer_rows, version, path, found.rows, top=top, least=min_confidence))


def ask_text(
    version: Version,
    path: Path,
    names: Mapping[str, str | None] | None = None,
    *,
    pairs: Pairs = "likelier",
    pronouns: bool = True,
    min_confidence: float | None = None,
    columns: Mapping[str, str] | None = None,
) -> FileQuestions:
    """Extract relations from a text, line by line; without `names`, entities are found as in `Version.extract`.

    Files whose names end in .jsonl hold objects (`TextRow`), those in .csv a column `text`, or that of `columns`.
    """
    tagger = NameTagger(names) if names else None

    def given(line: TextLine) -> tuple[str, Entities]:
        if line.error or not line.row.text.strip():
            raise DataError(line.error or "the text is empty.")
        return line.row.text, tagger if (marks := line.row.marks()) is None else marks

    def ask(lines: Sequence[TextLine]) -> list[Asked]:
        try:
            asked = version.questions_of([*map(given, lines)], pronouns=pronouns)
        except DataError as fault:  # of one line: ask line by line to learn which
            return [(lines[0], str(fault))] if len(lines) == 1 else [one for line in lines for one in ask([line])]
        return list(zip(lines, asked, strict=True))

    def batches() -> Iterator[list[TextLine]]:
        some, size = list[TextLine](), 0
        for line in read_texts(path, columns=columns):
            some.append(line)
            size += len(line.row.text)
            if size >= CHARACTERS:
                yield some
                some, size = [], 0
        if some:
            yield some

    def answer(lines: Sequence[TextLine]) -> AnswerBatch:
        return _answer_lines(version, ask(lines), pairs, min_confidence)

    return FileQuestions(path, (path,), lambda: _in_turn(answer, batches()), TEXT_COLUMNS)


def _answer_rows(
    version: Version, path: Path, rows_of: RowReader, *, top: int, least: float | None
) -> Iterator[AnswerBatch]:
    rest = in_place(path, partial(rows_of, path))
    while batch := [
        (*_read(row), _given({} if isinstance(row, Unread) else row.columns())) for row in islice(rest, BATCH)
    ]:
        asked = [one for _, one, _ in batch if isinstance(one, Example)]
        answers = iter(version.predict(asked, top=top, min_confidence=least))
        rows: list[PlainRow] = [
            {"id": one.id, **asdict(one), **given}
            if isinstance(one, Unread)
            else {"id": one.id, "line": line, **next(answers).to_json(), **given}
            for line, one, given in batch
        ]
        yield AnswerBatch(rows, batch[-1][0])


def _given(columns: Mapping[str, Any]) -> PlainRow:
    """The fields of the input row, for the output; none if they are so long that they would fill the disk."""
    return {INPUT: columns} if columns and len(json.dumps(columns)) <= MOST_CHARACTERS else {}


def _read(row: SourceRow | Unread) -> tuple[int, Example | Unread]:
    if isinstance(row, Unread):
        return row.line, row
    try:
        found = row.read()
        example = found.example if isinstance(found, Rejected) else found
        if isinstance(example, str):  # the reason to skip the row
            raise DataError(example)
        return row.line, example_of(example)
    except DataError as fault:
        return row.line, Unread(row.line, f"{row.where}{fault}", row.id() or None)


def _in_turn(answer: Callable[[Batch], Answered], batches: Iterator[Batch]) -> Iterator[Answered]:
    """Answer batches and yield them in their order: the first on all cores, then one on each core.

    So the Python code of one batch runs while ONNX Runtime encodes another. If the reader fails, the batches before are
    yielded first.
    """
    yield from map(answer, islice(batches, 1))
    stopped = Event()

    def check(_: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    def answered(batch: Batch) -> Answered:
        with sharing(), watched(check):
            return answer(batch)

    def submitted() -> Iterator[Future[Answered]]:
        try:
            for batch in batches:
                yield pool.submit(answered, batch)
        except Exception as fault:
            failed = Future[Answered]()
            failed.set_exception(fault)
            yield failed

    n_threads = available_threads()
    pool, ahead = ThreadPoolExecutor(n_threads), submitted()
    try:
        coming = deque(islice(ahead, n_threads + 1))
        while coming:
            done = coming.popleft().result()
            coming.extend(islice(ahead, 1))
            yield done
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def _answer_lines(version: Version, asked: Sequence[Asked], pairs: Pairs, least: float | None) -> AnswerBatch:
    """Answer the questions of some lines; a line without questions has an error instead."""
    texts = [questions for _, questions in asked if isinstance(questions, PairQuestions)]
    extractions = iter(version.answer_texts(texts, top=1, min_confidence=least))
    rows, n_entities, taggers = list[PlainRow](), 0, set[str]()
    for line, questions in asked:
        row, given = line.row, _given(line.columns)
        place: PlainRow = {"id": row.id, "line": line.line}
        if isinstance(questions, str):
            rows.append({**place, "error": questions, **given})
            continue
        found = next(extractions)
        rows += ({**one, **given} for one in rows_of_line(place, row.text, found, pairs))
        n_entities += found.n_entities
        taggers.add(found.tagger)
    return AnswerBatch(rows, asked[-1][0].line, n_entities, frozenset(taggers))


def count_lines(path: Path) -> int:
    """Count the lines of a file after decompression; a folder has 0."""
    if path.is_dir():
        return 0
    with opened(path) as file:
        return sum(piece.count(b"\n") for piece in iter(partial(file.read, 1 << 20), b"")) + 1
