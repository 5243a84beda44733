"""The nouns of `erda`: frozen values that cross package borders.

Relations are named by strings (`Relation.id`) everywhere outside a method; integers live only inside one.
A `Span` counts tokens and excludes its end, as Python slices do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, overload

from erda.errors import DataError

if TYPE_CHECKING:
    import numpy as np

# What the scores of a method are: cosines with prototypes in [-1, 1]; logits of a softmax; distances from references,
# at most 0; logarithms of likelihoods against a relation never seen. All are large where likely; none is a probability.
ScoreKind = Literal["cosine", "logit", "negative distance", "log-likelihood"]


NO_RELATION = "no_relation"  # in files: the relation of an example for which no relation holds


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Tokens `start` to `end`, the end excluded; never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0:
            raise DataError(f"span ({self.start}, {self.end}) starts before the first token.")
        if self.end <= self.start:
            raise DataError(f"span ({self.start}, {self.end}) is empty; an entity has at least one token.")


@dataclass(frozen=True, slots=True)
class Entity:
    """A mention of something in a sentence. `id` names the thing itself (a Wikidata id, a page title).

    `type` is its kind (PERSON, ORG, ...), from a tagger or from the user. `resolved` is the name that a pronoun stands
    for. Neither changes a vector or a key: entities that differ in them alone are equal.
    """

    name: str
    span: Span
    id: str | None = None
    type: str | None = field(default=None, compare=False)
    resolved: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence with two marked entities and, if known, the relation from head to tail."""

    tokens: tuple[str, ...]
    head: Entity
    tail: Entity
    relation: str | None = None
    id: str = ""
    source: str | None = None

    def __post_init__(self) -> None:
        n_tokens = len(self.tokens)
        for role, entity in (("head", self.head), ("tail", self.tail)):
            if entity.span.end > n_tokens:
                span = (entity.span.start, entity.span.end)
                raise DataError(f"{role} span {span} ends after the last token ({n_tokens} tokens).")
        head, tail = self.head.span, self.tail.span
        if head == tail:
            raise DataError(
                f"head and tail are the same span ({head.start}, {head.end}); a relation needs two entities."
            )
        if head.start < tail.end and tail.start < head.end:
            raise DataError(
                f"head span ({head.start}, {head.end}) overlaps tail span ({tail.start}, {tail.end}); "
                "mark two separate mentions."
            )


def pair_in_sentence(example: Example) -> tuple[object, ...]:
    """Return the key of an entity pair in a sentence: the tokens and both spans."""
    return example.tokens, example.head.span, example.tail.span


def pair_key(example: Example) -> str:
    """Return a key of an entity pair in a sentence, from which neither can be read."""
    head, tail = example.head.span, example.tail.span
    place = f"{head.start} {head.end} {tail.start} {tail.end} "
    return hashlib.blake2b((place + "\x1f".join(example.tokens)).encode(), digest_size=8).hexdigest()


Judged = Mapping[str, Mapping[str, bool]]  # key of a pair -> id of a relation -> whether it holds, as people said


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation between two entities. `id` is its key; `name` and `description` are for people."""

    id: str
    name: str
    description: str = ""

    def __post_init__(self) -> None:
        if not self.id or not self.name.strip():
            raise DataError(f"relation {self.id!r} needs an id and a name.")


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one learning step: new or known relations, and labelled examples of them."""

    index: int  # 0 for the first task of a stream
    relations: tuple[Relation, ...]
    examples: tuple[Example, ...]

    def __post_init__(self) -> None:
        known = {relation.id for relation in self.relations}
        if len(known) != len(self.relations):
            raise DataError(f"task {self.index + 1} names a relation twice.")
        for example in self.examples:
            if example.relation not in known:
                raise DataError(
                    f"task {self.index + 1}: example {example.id!r} has unknown relation {example.relation!r}."
                )

    def check_examples(self) -> None:
        """Reject a relation without examples; only some methods learn from a name alone."""
        missing = sorted({relation.id for relation in self.relations} - {str(one.relation) for one in self.examples})
        if missing:
            raise DataError(f"task {self.index + 1} has no example of: {', '.join(missing)}.")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Relations for one example, best first, with their scores."""

    relations: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def best(self) -> str:
        """The relation with the highest score."""
        return self.relations[0]


@dataclass(frozen=True, slots=True, eq=False)
class Predictions(Sequence[Prediction]):
    """Scores of every known relation for every example; a sequence of `Prediction`.

    `scores[i, j]` is the score of `relations[j]` for example `i`, [n_examples, n_relations]; a large score is likely.
    `kind` names the kind of scores, for calibration.
    """

    relations: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    kind: ScoreKind | None = None

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or self.scores.shape[1] != len(self.relations):
            raise DataError(f"scores of shape {self.scores.shape} do not fit {len(self.relations)} relations.")

    def __len__(self) -> int:
        return self.scores.shape[0]

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> Predictions: ...
    def __getitem__(self, index: int | slice) -> Prediction | Predictions:
        if isinstance(index, slice):
            return Predictions(self.relations, self.scores[index], self.kind)
        row = self.scores[index]
        ranked = (-row).argsort(kind="stable")
        return Prediction(tuple(self.relations[j] for j in ranked), tuple(float(row[j]) for j in ranked))

    @property
    def best(self) -> list[str]:
        """The best relation of each example; ties go to the relation learned first."""
        return [self.relations[j] for j in self.scores.argmax(axis=1)]


@dataclass(frozen=True, slots=True)
class TestSet:
    """Test questions and their answers. A method receives only `examples`, without relations.

    `candidates[i]` are the wrong relations listed with example `i` (the `candidates` protocol), or None if the dataset
    lists none.
    """

    __test__ = False  # not a test case for pytest

    examples: tuple[Example, ...]
    gold: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        if len(self.examples) != len(self.gold):
            raise DataError(f"{len(self.examples)} questions have {len(self.gold)} answers.")
        if any(example.relation is not None for example in self.examples):
            raise DataError("a test example still carries its relation.")


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """Recipe to rebuild an encoder: name, settings and fingerprint of its initial weights."""

    name: str
    settings: Mapping[str, bool | int | float | str]
    fingerprint: str
