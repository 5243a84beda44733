"""What an extractor says: frozen values for programs, each with a plain JSON form for commands and servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from erda.errors import counted
from erda.text.marks import example_to_marks
from erda.types import Example

Progress = Callable[[int, int], None]  # how much is done, of how much


@dataclass(frozen=True, slots=True)
class Ranked:
    """A relation that may hold, with an example of it that the method kept."""

    relation: str
    confidence: float  # between 0 and 1
    score: float  # the method's own (`Predictions.kind`)
    exemplar: Example | None = None


@dataclass(frozen=True, slots=True)
class TextPlace:
    """Character offsets of both entities in the original text, ends excluded."""

    head_start: int
    head_end: int
    tail_start: int
    tail_end: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The relation between the two entities of a sentence; None if no known relation is likely enough.

    `ranked` holds the most likely relations, best first, even if `relation` is None. `place` is known for the answers
    of `extract`.
    """

    example: Example
    relation: str | None
    ranked: tuple[Ranked, ...]
    place: TextPlace | None = None

    @property
    def best(self) -> str | None:
        """Alias of `relation`."""
        return self.relation

    @property
    def confidence(self) -> float:
        """Of the likeliest relation."""
        return self.ranked[0].confidence

    def to_json(self) -> dict[str, Any]:
        """For a line of output; offsets and entity types where they are known."""
        head, tail = self.example.head, self.example.tail
        types = {"head_type": head.type, "tail_type": tail.type}
        return {
            "text": example_to_marks(self.example),
            "head": head.name,
            "tail": tail.name,
            **(asdict(self.place) if self.place else {}),
            **{name: kind for name, kind in types.items() if kind},
            "relation": self.relation,
            "confidence": round(self.confidence, 4),
            "ranked": [{"relation": one.relation, "confidence": round(one.confidence, 4)} for one in self.ranked],
        }


@dataclass(frozen=True, slots=True)
class Extraction:
    """What holds between the entities of a text.

    `tagger` says how entities were found: given (marks), names, spacy:PIPELINE or capitalised. `hint` says how to get a
    better tagger, or that no entity was found; it is empty otherwise.
    """

    answers: tuple[Answer, ...]  # of every ordered pair of entities that share a sentence
    tagger: str
    n_entities: int
    n_left_out: int = 0  # pairs over the bound
    hint: str = ""

    @property
    def found(self) -> tuple[Answer, ...]:
        """The pairs between which a relation holds, each in the likelier of its two directions."""
        return likelier(self.answers)

    @property
    def found_both_ways(self) -> tuple[Answer, ...]:
        """The pairs between which a relation holds, in every direction in which one does."""
        return tuple(answer for answer in self.answers if answer.relation is not None)


def likelier(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Where a relation holds: of each pair of entities in a sentence the direction of higher confidence."""
    found: dict[object, Answer] = {}
    for answer in answers:
        pair = answer.example.tokens, frozenset((answer.example.head.span, answer.example.tail.span))
        if answer.relation is not None and (pair not in found or answer.confidence > found[pair].confidence):
            found[pair] = answer
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An example that was taught, and how like the question it is: the cosine of their vectors."""

    example: Example
    similarity: float


@dataclass(frozen=True, slots=True)
class WordEffect:
    """The effect of removing one word from the sentence."""

    word: str
    place: int  # token index
    relation: str | None  # the answer without the word
    change: float  # in the confidence of the relation that ranks first with the word

    @property
    def best(self) -> str | None:
        """Alias of `relation`."""
        return self.relation


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an answer is what it is: the taught examples most like it, and the words, those that count most first."""

    answer: Answer
    nearest: tuple[Neighbour, ...]
    words: tuple[WordEffect, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """An example that was taught as one relation and now as another: the later one counts."""

    example: Example
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Taught:
    """The result of a teaching. `version` is the new version, or the current one if nothing changed."""

    version: int
    new: tuple[str, ...] = ()  # relations that were unknown before
    n_examples: int = 0  # new examples
    duplicates: tuple[Example, ...] = ()  # skipped: known already
    moved: tuple[Moved, ...] = ()
    forgotten: tuple[str, ...] = ()  # relations whose last example moved away
    described: tuple[str, ...] = ()  # known relations with a new name or description

    def __str__(self) -> str:
        if self.new or self.n_examples or self.moved:
            said = [f"Version {self.version}: {counted(self.n_examples, 'new example')}"]
        else:
            said = [f"Version {self.version}: no new example" if self.described else "Nothing new"]
        said += [f"new: {', '.join(self.new)}"] if self.new else []
        said += [f"new description: {', '.join(self.described)}"] if self.described else []
        said += [f"{counted(len(self.duplicates), 'example')} known already"] if self.duplicates else []
        said += [f"'{example_to_marks(one.example)}' moved from {one.before} to {one.after}" for one in self.moved]
        said += [f"{name} has no example left and is forgotten" for name in self.forgotten]
        return "; ".join(said) + "."


@dataclass(frozen=True, slots=True)
class RelationScore:
    """How one relation fared: `n` questions of it, `n_right` found, and `n_answered` times that it was the answer."""

    n: int
    n_right: int
    n_answered: int

    @property
    def recall(self) -> float | None:
        """Of its questions, the share that was found; None where there was none."""
        return self.n_right / self.n if self.n else None

    @property
    def precision(self) -> float | None:
        """Of the answers that named it, the share that was right; None where there was none."""
        return self.n_right / self.n_answered if self.n_answered else None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Answers beside the truth. Where no relation holds, or one that was never taught, None is the right answer."""

    n: int
    accuracy: float  # None counts as an answer
    accuracy_of_known: float | None  # the likeliest relation, of the questions whose relation was taught
    relations: dict[str, RelationScore]
    confusion: dict[tuple[str | None, str | None], int]  # (truth, answer) -> how often
    untaught: tuple[str, ...] = ()  # relations of the file that were never taught


@dataclass(frozen=True, slots=True)
class Change:
    """A question that two versions answer differently, with the truth where it is known."""

    example: Example
    before: str | None
    after: str | None
    truth: str | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A sentence of a corpus that may hold a relation; `example` can be taught as it is."""

    example: Example
    confidence: float  # in the relation
    similarity: float  # to the taught example that it was found for


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A line of the history."""

    number: int
    parent: int | None
    time: str
    what: str
    method: str
    encoder: str
    n_relations: int
    n_examples: int
    is_current: bool = False
