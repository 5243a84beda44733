"""Questions of a file of sentences or text, answered piece by piece (`answer_files` writes them)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from erda.app.answer_files import AnswerJob, Asking, Piece
from erda.app.answer_tables import INPUT, TEXT_COLUMNS, PlainRow
from erda.app.answers import Pairs
from erda.app.entities import find_tagger
from erda.app.inputs import MOST_CHARACTERS, example_of
from erda.app.texts import TextLine, TextRow, Unread, in_place, read_texts
from erda.app.version import MOST_PAIRS, TOP, PairQuestions, Version
from erda.data.dataset import file_stamps
from erda.data.formats.annotation_tools import brat_files
from erda.data.formats.row_collector import Rejected, RowReader, SourceRow
from erda.data.own_data import own_format, row_reader
from erda.errors import DataError, counted
from erda.text.names import NameTagger
from erda.text.reading import opened
from erda.types import Example

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
