"""The bodies of answers: models that the reference documents and the client reads, and functions that write the rows.

A row of an answer is what `erda predict` prints, with the tokens and spans that rebuild the answer. The server writes
rows without a second validation; the tests compare them with the models.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from erda import answers
from erda.app.version import Version
from erda.errors import ModelError
from erda.files import decode
from erda.text.marks import example_from_marks, example_to_marks
from erda.types import Entity, Example, Span

T = TypeVar("T")
Ends = Annotated[list[int], Field(min_length=2, max_length=2)]


class Failure(BaseModel):
    """The body of every answer that is not a success."""

    error: str  # a word for programs
    message: str  # a sentence for people
    where: str = ""  # the field, header or example at fault


class OpenModel(BaseModel):
    """An answer with further fields, mostly those of the value that the Python library returns."""

    model_config = {"extra": "allow"}


class Reply(OpenModel):
    """An answer and the version that gave it."""

    version: int


class SentenceRow(OpenModel):
    """A sentence with marks, its tokens, and the tokens of its entities; ids, types, resolved pronouns where known."""

    text: str
    head: str
    tail: str
    tokens: list[str]
    head_span: Ends
    tail_span: Ends
    head_id: str | None = None
    tail_id: str | None = None
    head_type: str | None = None
    tail_type: str | None = None
    head_resolved: str | None = None
    tail_resolved: str | None = None
    relation: str | None = None

    def value(self, kind: type[T], *, relation: str | None = None) -> T:
        """The value of a row, which has an `example` and otherwise the fields of the row."""
        head = Entity(self.head, Span(*self.head_span), self.head_id, self.head_type, self.head_resolved)
        tail = Entity(self.tail, Span(*self.tail_span), self.tail_id, self.tail_type, self.tail_resolved)
        row = {**dict(self), "example": Example(tuple(self.tokens), head, tail, relation)}
        return decode(row, kind, error=ModelError)


class AnswerReply(SentenceRow):
    """The relation from head to tail, or null. Character offsets are there for answers of `extract`."""

    relation: str | None
    relations: list[str] = []
    confidence: float
    ranked: Annotated[list[answers.Ranked], Field(min_length=1)]

    def answer(self) -> answers.Answer:
        """The answer, with its place where it has one."""
        found, offsets = self.value(answers.Answer), self.model_extra or {}
        place = decode(offsets, answers.TextPlace, error=ModelError) if "head_start" in offsets else None
        relations = found.relations or (() if self.relation is None else (self.relation,))
        return replace(found, place=place, relations=relations)


class ConfusionRow(BaseModel):
    """The number of questions with this truth and this answer."""

    truth: str | None
    answer: str | None
    n: int


class AnswersReply(Reply):
    """Answers in the order of the questions."""

    answers: list[AnswerReply]


class ExtractionReply(AnswersReply):
    """The fields of `Extraction`: the relations of a text, how its entities were found, and how many."""

    tagger: str
    n_entities: int

    def value(self) -> answers.Extraction:
        """The extraction."""
        found = [one.answer() for one in self.answers]
        return decode({**dict(self), "answers": found}, answers.Extraction, error=ModelError)


class ExplanationReply(Reply):
    """The answer, the nearest examples and the words by their effect."""

    answer: AnswerReply
    nearest: list[SentenceRow]
    words: list[answers.WordEffect]

    def value(self) -> answers.Explanation:
        """The explanation."""
        nearest = (one.value(answers.Neighbour, relation=one.relation) for one in self.nearest)
        return answers.Explanation(self.answer.answer(), tuple(nearest), tuple(self.words))


class TaughtReply(Reply):
    """The fields of `Taught`; examples as sentences with marks."""

    duplicates: list[str]
    moved: list[SentenceRow]

    def value(self) -> answers.Taught:
        """The result of a teaching."""
        duplicates = [example_from_marks(one) for one in self.duplicates]
        moved = [one.value(answers.Moved, relation=one.relation) for one in self.moved]
        return decode({**dict(self), "duplicates": duplicates, "moved": moved}, answers.Taught, error=ModelError)


class EvaluationReply(Reply):
    """The fields of `Evaluation`; recall and precision with the counts of each relation."""

    confusion: list[ConfusionRow]

    def value(self) -> answers.Evaluation:
        """The evaluation."""
        confusion = {(one.truth, one.answer): one.n for one in self.confusion}
        return decode({**dict(self), "confusion": confusion}, answers.Evaluation, error=ModelError)


class ReviewReply(Reply):
    """The pair to decide about, or null and the reason; decided keys; the fields of `ReviewView`."""

    pair: SentenceRow | None
    reason: str
    progress: str  # a sentence: expected shares of right answers and of facts found, and whether to stop
    keys: list[str]


class JobReply(OpenModel):
    """A job; `result` is there once it is done."""

    id: str
    kind: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    total: int
    created: float
    failure: Failure | None = None
    result: dict[str, Any] | None = None


# -- values to rows ----------------------------------------------------------------------------------------------------


def token_row(example: Example) -> dict[str, Any]:
    """The tokens of a sentence, and where its entities are."""
    head, tail = example.head.span, example.tail.span
    spans = {"head_span": [head.start, head.end], "tail_span": [tail.start, tail.end]}
    return {"tokens": list(example.tokens), **spans}


def answer_row(answer: answers.Answer) -> dict[str, Any]:
    """An answer as printed by the command line, with tokens, spans and scores."""
    row = {**answer.to_json(), **token_row(answer.example)}
    for one, ranked in zip(row["ranked"], answer.ranked, strict=True):
        one["score"] = ranked.score
    return row


def value_row(value: Any) -> dict[str, Any]:
    """A value that has an `example`: its sentence, where its entities are, its relation, and all other fields."""
    example = value.example
    more = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "example"}
    return {**answers.example_row(example), **token_row(example), "relation": example.relation, **more}


def extraction_row(found: answers.Extraction, keep: answers.Pairs) -> dict[str, Any]:
    """The kept answers of a text."""
    about = {name: getattr(found, name) for name in ("tagger", "n_entities", "n_left_out", "hint")}
    return {"answers": [answer_row(one) for one in found.kept(keep)], **about}


def explanation_row(found: answers.Explanation) -> dict[str, Any]:
    """The answer, the nearest examples and the words by their effect."""
    words = [asdict(one) for one in found.words]
    return {"answer": answer_row(found.answer), "nearest": [value_row(one) for one in found.nearest], "words": words}


def taught_row(taught: answers.Taught) -> dict[str, Any]:
    """The fields of the value; examples as sentences with marks."""
    row = {name: getattr(taught, name) for name in answers.Taught.__slots__}
    row["duplicates"] = [example_to_marks(one) for one in taught.duplicates]
    return {**row, "moved": [value_row(one) for one in taught.moved], "message": str(taught)}


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
