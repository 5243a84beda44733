"""The bodies of answers: models for the reference, and functions that write a value as a row of JSON and read it back.

The server writes rows and the client reads them. A row of an answer is what `erda predict` prints, with the tokens and
spans that rebuild the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from erda import answers
from erda.app.state import Lesson
from erda.app.version import Version
from erda.files import decode
from erda.text.marks import example_from_marks, example_to_marks
from erda.types import Entity, Example, Span

Row = Mapping[str, Any]


class OpenModel(BaseModel):
    """An answer with further fields, mostly those of the value that the Python library returns."""

    model_config = {"extra": "allow"}


class Reply(OpenModel):
    """An answer and the version that gave it."""

    version: int


class AnswerReply(OpenModel):
    """The relation from head to tail, or null. Character offsets are there for answers of `extract`."""

    text: str
    head: str
    tail: str
    tokens: list[str]
    head_span: list[int]
    tail_span: list[int]
    relation: str | None
    confidence: float
    ranked: list[dict[str, Any]]


class AnswersReply(Reply):
    """Answers in the order of the questions; those of `extract` with the tagger and counts."""

    answers: list[AnswerReply]


class ReviewReply(Reply):
    """The pair to decide about, or null and the reason; counts and decided keys (docs/server.md)."""

    pair: dict[str, Any] | None
    reason: str
    keys: list[str]


class JobReply(OpenModel):
    """A job; `result` is there once it is done."""

    id: str
    kind: str
    state: str
    done: int
    total: int
    created: float
    failure: dict[str, str] | None = None
    result: dict[str, Any] | None = None


# -- values to rows and back -------------------------------------------------------------------------------------------


def example_row(example: Example) -> dict[str, Any]:
    """A sentence with its marks, and where its entities are."""
    return {**answers.example_row(example), **token_row(example)}


def token_row(example: Example) -> dict[str, Any]:
    """The tokens of a sentence, and where its entities are."""
    head, tail = example.head.span, example.tail.span
    spans = {"head_span": [head.start, head.end], "tail_span": [tail.start, tail.end]}
    return {"tokens": list(example.tokens), **spans}


def read_example(row: Row) -> Example:
    """The example of a row."""

    def entity(role: str) -> Entity:
        more = {name: row.get(f"{role}_{name}") for name in ("id", "type", "resolved")}
        return Entity(row[role], Span(*row[f"{role}_span"]), **more)

    return Example(tuple(row["tokens"]), entity("head"), entity("tail"), row.get("relation"))


def answer_row(answer: answers.Answer) -> dict[str, Any]:
    """An answer as printed by the command line, with tokens, spans and scores."""
    row = {**answer.to_json(), **token_row(answer.example)}
    for one, ranked in zip(row["ranked"], answer.ranked, strict=True):
        one["score"] = ranked.score
    return row


def read_answer(row: Row) -> answers.Answer:
    """The answer of a row, with its place where it has one."""
    names = answers.TextPlace.__slots__
    place = answers.TextPlace(*(row[name] for name in names)) if names[0] in row else None
    relations = row.get("relations") or ([row["relation"]] if row["relation"] is not None else ())
    ranked = tuple(answers.Ranked(**one) for one in row["ranked"])
    return answers.Answer(read_example({**row, "relation": None}), row["relation"], ranked, place, tuple(relations))


def extraction_row(found: answers.Extraction, keep: answers.Pairs) -> dict[str, Any]:
    """The kept answers of a text."""
    about = {name: getattr(found, name) for name in ("tagger", "n_entities", "n_left_out", "hint")}
    return {"answers": [answer_row(one) for one in found.kept(keep)], **about}


def read_extraction(row: Row) -> answers.Extraction:
    """The extraction of a row."""
    return decode({**row, "answers": [read_answer(one) for one in row["answers"]]}, answers.Extraction)


def explanation_row(found: answers.Explanation) -> dict[str, Any]:
    """The answer, the nearest examples and the words by their effect."""
    nearest = [
        {**example_row(one.example), "relation": one.example.relation, "similarity": one.similarity}
        for one in found.nearest
    ]
    return {"answer": answer_row(found.answer), "nearest": nearest, "words": [asdict(one) for one in found.words]}


def read_explanation(row: Row) -> answers.Explanation:
    """The explanation of a row."""
    nearest = [{**one, "example": read_example(one)} for one in row["nearest"]]
    return decode({**row, "answer": read_answer(row["answer"]), "nearest": nearest}, answers.Explanation)


def taught_row(taught: answers.Taught) -> dict[str, Any]:
    """The fields of the value; examples as sentences with marks."""
    row = {name: getattr(taught, name) for name in answers.Taught.__slots__}
    row["duplicates"] = [example_to_marks(one) for one in taught.duplicates]
    row["moved"] = [
        {"text": example_to_marks(one.example), "before": one.before, "after": one.after} for one in taught.moved
    ]
    return {**row, "message": str(taught)}


def read_taught(row: Row) -> answers.Taught:
    """The result of a teaching."""
    duplicates = [example_from_marks(one) for one in row["duplicates"]]
    moved = [{**one, "example": example_from_marks(one["text"])} for one in row["moved"]]
    return decode({**row, "duplicates": duplicates, "moved": moved}, answers.Taught)


def evaluation_row(found: answers.Evaluation) -> dict[str, Any]:
    """The fields of the value; recall and precision with the counts."""
    row = asdict(found)
    row["relations"] = {
        name: {**asdict(one), "recall": one.recall, "precision": one.precision} for name, one in found.relations.items()
    }
    row["confusion"] = [
        {"truth": truth, "answer": answer, "n": n} for (truth, answer), n in sorted(found.confusion.items(), key=str)
    ]
    return row


def read_evaluation(row: Row) -> answers.Evaluation:
    """The evaluation of a row."""
    confusion = {(one["truth"], one["answer"]): one["n"] for one in row["confusion"]}
    return decode({**row, "confusion": confusion}, answers.Evaluation)


def lesson_rows(lessons: Iterable[Lesson]) -> list[dict[str, Any]]:
    """Taught examples with their numbers."""
    return [{"number": one.number, **example_row(one.example), "relation": one.example.relation} for one in lessons]


def relation_rows(version: Version) -> list[dict[str, Any]]:
    """The relations of a version, the number of their examples, their declarations and thresholds."""
    thresholds = version.state.thresholds
    return [
        {
            **asdict(one.relation),
            "n_examples": len(one.lessons),
            "n_counterexamples": len(one.counterexamples),
            "head_types": list(one.head_types),
            "tail_types": list(one.tail_types),
            "threshold": thresholds.of(one.id) if thresholds else None,
        }
        for one in version.state.known
    ]
