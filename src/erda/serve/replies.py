"""The bodies of answers: models for the reference, and functions that fill them.

`answer_row` is the row that `erda predict` prints, with the tokens and spans that a client needs to rebuild the answer.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from erda.answers import Answer, Change, Evaluation, Explanation, Extraction, Pairs, Taught
from erda.app.state import Lesson, VersionInfo
from erda.app.version import Version
from erda.text.marks import example_to_marks
from erda.types import Example

Row = dict[str, Any]


class RankedReply(BaseModel):
    """A candidate relation."""

    relation: str
    confidence: float
    score: float


class AnswerReply(BaseModel):
    """The relation from head to tail, or null. Character offsets are there for answers of `extract`."""

    model_config = {"extra": "allow"}

    text: str
    head: str
    tail: str
    tokens: list[str]
    head_span: list[int]
    tail_span: list[int]
    relation: str | None
    confidence: float
    ranked: list[RankedReply]


class OneAnswer(AnswerReply):
    """An answer and the version that gave it."""

    version: int


class Answers(BaseModel):
    """Answers in the order of the questions, and the version that gave them all."""

    version: int
    answers: list[AnswerReply]


class ExtractionReply(Answers):
    """Answers for the pairs of entities of a text; `tagger` says how the entities were found.

    `inverses` are the declared inverses; a symmetric relation is its own.
    """

    tagger: str
    n_entities: int
    n_left_out: int
    hint: str
    inverses: dict[str, str]


class TaughtReply(BaseModel):
    """What a teaching changed, and the version after it."""

    model_config = {"extra": "allow"}

    version: int
    message: str


class Changed(BaseModel):
    """The version after a change."""

    version: int


class Reply(BaseModel):
    """An answer whose fields follow the value of the same name in the Python library, and the version."""

    model_config = {"extra": "allow"}

    version: int


class JobReply(BaseModel):
    """A job; `result` is there once it is done."""

    model_config = {"extra": "allow"}

    id: str
    kind: str
    state: str
    done: int
    total: int
    created: float
    failure: dict[str, str] | None = None
    result: dict[str, Any] | None = None


class JobsReply(BaseModel):
    """All jobs, oldest first."""

    jobs: list[JobReply]


class Health(BaseModel):
    """Whether the server can answer; `trouble` says what is wrong with the store."""

    model_config = {"extra": "allow"}

    status: str


# -- values to rows ----------------------------------------------------------------------------------------------------


def example_row(example: Example) -> Row:
    """A sentence with its marks, and where its entities are."""
    spans = {f"{role}_span": [one.span.start, one.span.end] for role, one in _roles(example)}
    names = {role: one.name for role, one in _roles(example)}
    more = {f"{role}_type": one.type for role, one in _roles(example) if one.type}
    more |= {f"{role}_resolved": one.resolved for role, one in _roles(example) if one.resolved}
    return {"text": example_to_marks(example), **names, "tokens": list(example.tokens), **spans, **more}


def answer_row(answer: Answer) -> Row:
    """An answer as printed by the command line, with tokens, spans and scores."""
    example = answer.example
    spans = {f"{role}_span": [one.span.start, one.span.end] for role, one in _roles(example)}
    row = {**answer.to_json(), "tokens": list(example.tokens), **spans}
    for one, ranked in zip(row["ranked"], answer.ranked, strict=True):
        one["score"] = ranked.score
    return row


def extraction_row(found: Extraction, keep: Pairs) -> Row:
    """The kept answers of a text."""
    about = {"tagger": found.tagger, "n_entities": found.n_entities, "n_left_out": found.n_left_out, "hint": found.hint}
    return {"answers": [answer_row(one) for one in found.kept(keep)], **about, "inverses": dict(found.inverses)}


def explanation_row(found: Explanation) -> Row:
    """The answer, the nearest examples and the words by their effect."""
    nearest = [
        {**example_row(one.example), "relation": one.example.relation, "similarity": one.similarity}
        for one in found.nearest
    ]
    return {"answer": answer_row(found.answer), "nearest": nearest, "words": [asdict(one) for one in found.words]}


def taught_row(taught: Taught) -> Row:
    """The fields of the value; examples as sentences with marks."""
    row = {name: getattr(taught, name) for name in Taught.__slots__}
    row["duplicates"] = [example_to_marks(one) for one in taught.duplicates]
    row["moved"] = [
        {"text": example_to_marks(one.example), "before": one.before, "after": one.after} for one in taught.moved
    ]
    return {**row, "message": str(taught)}


def evaluation_row(found: Evaluation) -> Row:
    """The fields of the value; recall and precision with the counts."""
    row = asdict(found)
    row["relations"] = {
        name: {**asdict(one), "recall": one.recall, "precision": one.precision} for name, one in found.relations.items()
    }
    row["confusion"] = [
        {"truth": truth, "answer": answer, "n": n} for (truth, answer), n in sorted(found.confusion.items(), key=str)
    ]
    return row


def change_row(change: Change) -> Row:
    """A question that two versions answer differently."""
    return {**example_row(change.example), "before": change.before, "after": change.after, "truth": change.truth}


def lesson_row(lesson: Lesson) -> Row:
    """A taught example with its number."""
    return {"number": lesson.number, **example_row(lesson.example), "relation": lesson.example.relation}


def relations_row(version: Version) -> Row:
    """The relations of a version, the number of their examples, their declarations and thresholds."""
    thresholds = version.state.thresholds
    known = [
        {
            **asdict(one.relation),
            "n_examples": len(one.lessons),
            "n_counterexamples": len(one.counterexamples),
            "symmetric": one.symmetric,
            "inverse": one.inverse,
            "head_types": list(one.head_types),
            "tail_types": list(one.tail_types),
            "threshold": thresholds.of(one.id) if thresholds else None,
        }
        for one in version.state.known
    ]
    return {"version": version.number, "relations": known}


def history_row(version: Version, history: list[VersionInfo]) -> Row:
    """All versions on disk, oldest first."""
    return {"version": version.number, "versions": [asdict(one) for one in history]}


def _roles(example: Example) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return ("head", example.head), ("tail", example.tail)
