"""The answers and reports of an extractor, as frozen values. Its classes are public names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from erda.errors import counted, require
from erda.graph import Aliases, build_graph
from erda.text.marks import example_to_marks
from erda.text.pronouns import is_possessive, is_pronoun
from erda.types import Entity, Example

if TYPE_CHECKING:
    import networkx as nx

Progress = Callable[[int, int], None]  # receives (done, total)
Pairs = Literal["likelier", "both", "all"]  # which pairs of entities to report


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate relation, with one of its exemplars."""

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

    `relations` holds all relations above the threshold, and `relation` is the first of them. `ranked` holds them and
    the most likely relations, best first, even if `relation` is None. `place` is known for the answers of `extract`.
    """

    example: Example
    relation: str | None
    ranked: tuple[Ranked, ...]
    place: TextPlace | None = None
    relations: tuple[str, ...] = ()

    @property
    def head_name(self) -> str:
        """Name of the head: what a resolved pronoun stands for, else the mention itself."""
        return self.example.head.resolved or self.example.head.name

    @property
    def tail_name(self) -> str:
        """Name of the tail: what a resolved pronoun stands for, else the mention itself."""
        return self.example.tail.resolved or self.example.tail.name

    @property
    def held(self) -> tuple[Ranked, ...]:
        """The relations above the threshold with their confidences, best first."""
        return tuple(one for one in self.ranked if one.relation in self.relations)

    @property
    def confidence(self) -> float:
        """Confidence of `relation`; without one, of the most likely relation."""
        return next((one.confidence for one in self.ranked if one.relation == self.relation), self.ranked[0].confidence)

    def to_json(self) -> dict[str, Any]:
        """For a line of output, with offsets where they are known."""
        return {
            **example_row(self.example),
            **(asdict(self.place) if self.place else {}),
            "relation": self.relation,
            **({"relations": list(self.relations)} if len(self.relations) > 1 else {}),
            "confidence": round(self.confidence, 4),
            "ranked": [{"relation": one.relation, "confidence": round(one.confidence, 4)} for one in self.ranked],
        }


def example_row(example: Example) -> dict[str, Any]:
    """A sentence with marks and the names of its entities; resolved pronouns, ids and types where they are known."""
    ends = {"head": example.head, "tail": example.tail}
    more = {f"{role}_{name}": getattr(one, name) for name in ("resolved", "id", "type") for role, one in ends.items()}
    names = {role: one.name for role, one in ends.items()}
    return {"text": example_to_marks(example), **names, **{name: one for name, one in more.items() if one}}


@dataclass(frozen=True, slots=True)
class Extraction:
    """The relations between the entities of a text.

    `tagger` says how entities were found: given (marks), names, capitalised, or spacy:PIPELINE+capitalised. `hint` says
    how to get a better tagger, that no entity was found, or that the text is not English; it is empty otherwise.
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
        """The pairs between which a relation holds, in both directions if both hold."""
        return tuple(one for one in self.answers if one.relation is not None)

    def kept(self, pairs: Pairs) -> tuple[Answer, ...]:
        """The pairs to report: with a relation, in the likelier direction or in both; or all."""
        if pairs == "all":
            return self.answers
        return self.found if pairs == "likelier" else self.found_both_ways

    def rows(self, *, pairs: Pairs = "likelier", document: str | None = None) -> Iterator[dict[str, Any]]:
        """The kept pairs as rows of output (`Answer.to_json`), one for each relation; `id` is the document."""
        for answer in self.kept(pairs):
            yield from by_relation({"id": document, **answer.to_json()})

    def to_networkx(self, *, aliases: Aliases | None = None, document: str | None = None) -> nx.MultiDiGraph:
        """`found` as a graph (`erda.graph.build_graph`); `aliases` maps spellings to the names of their nodes."""
        require("networkx")
        return build_graph(self.rows(document=document), aliases)


def by_relation(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each relation that holds, with its confidence; the row itself if there are not several."""
    confidences = {one["relation"]: one["confidence"] for one in row.get("ranked", ())}
    for relation in row.get("relations", ()):
        yield row | {"relation": relation, "confidence": confidences[relation]}
    if "relations" not in row:
        yield row


def likelier(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Keep answers with a relation; of the answers about two entities of a sentence, keep the most confident one.

    A name and the pronouns that were resolved to it are one entity. A possessive without a name ("its purchase of
    Acme") adds nothing where a name of the sentence has the same relation to the same entity.
    """
    found: dict[object, Answer] = {}
    for answer in answers:
        pair = answer.example.tokens, frozenset((answer.head_name, answer.tail_name))
        if answer.relation is not None and (pair not in found or answer.confidence > found[pair].confidence):
            found[pair] = answer
    sides = list[tuple[Answer, object, Entity]]()  # a relation with the entity on one side of it, and the other entity
    for answer in found.values():
        example, relation = answer.example, (answer.example.tokens, answer.relation)
        sides.append((answer, (*relation, "head", answer.head_name), example.tail))
        sides.append((answer, (*relation, "tail", answer.tail_name), example.head))
    named = {fact for _, fact, other in sides if not is_pronoun(other.name)}
    empty = {id(answer) for answer, fact, other in sides if is_possessive(other) and fact in named}
    return tuple(answer for answer in found.values() if id(answer) not in empty)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A taught example and its cosine similarity to the question."""

    example: Example
    similarity: float


@dataclass(frozen=True, slots=True)
class WordEffect:
    """The effect of removing one word from the sentence."""

    word: str
    place: int  # token index
    relation: str | None  # the answer without the word
    change: float  # in the confidence of the relation that ranks first with the word


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons of an answer: the most similar taught examples, and the words by decreasing effect."""

    answer: Answer
    nearest: tuple[Neighbour, ...]
    words: tuple[WordEffect, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """An example that moved from one relation to another; the later teaching counts.

    `before` and `after` are relations, "counterexamples of RELATION", or "no_relation".
    """

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
    n_counterexamples: int = 0  # new ones
    n_unrelated: int = 0  # new sentences in which no relation holds
    n_patterns: int = 0  # new patterns in descriptions
    warnings: tuple[str, ...] = ()  # examples whose head and tail look exchanged

    def __str__(self) -> str:
        more = [counted(self.n_patterns, "new pattern")] if self.n_patterns else []
        more += [counted(self.n_counterexamples, "new counterexample")] if self.n_counterexamples else []
        more += [f"{counted(self.n_unrelated, 'sentence')} without a relation"] if self.n_unrelated else []
        if self.new or self.n_examples or self.moved or more:
            own = [] if more and not self.n_examples else [counted(self.n_examples, "new example")]
            said = [f"Version {self.version}: {', '.join([*own, *more])}"]
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
    """Counts of one relation: `n` questions, `n_right` correct answers, `n_answered` answers that name it."""

    n: int
    n_right: int
    n_answered: int

    @property
    def recall(self) -> float | None:
        """Share of its questions that are answered correctly; None if there are none."""
        return self.n_right / self.n if self.n else None

    @property
    def precision(self) -> float | None:
        """Share of correct answers among those that name it; None if there are none."""
        return self.n_right / self.n_answered if self.n_answered else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None if there is nothing to find and nothing was found."""
        return 2 * self.n_right / (self.n + self.n_answered) if self.n + self.n_answered else None


@dataclass(frozen=True, slots=True)
class TunedRelation:
    """The threshold of a relation, and what to expect of it. Without enough labelled rows, it is the overall one."""

    threshold: float
    is_own: bool
    expected: RelationScore  # cross-validated


@dataclass(frozen=True, slots=True)
class Tuned:
    """Thresholds that were fitted for a precision; `version` holds them.

    Precision and recall in `expected` are cross-validated: thresholds fitted on four fifths of the rows, applied to the
    rest. `in_text`: they were fitted on all pairs of annotated texts and apply to `extract`; otherwise to `predict`.
    """

    version: int
    precision: float  # the target
    n_rows: int
    threshold: float  # overall
    expected: RelationScore
    relations: dict[str, TunedRelation]
    in_text: bool = False
    n_taught: int = 0  # rows left out because they were taught


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Answers compared with the truth. None is correct if no relation holds or if the relation was never taught."""

    n: int
    accuracy: float  # None counts as an answer
    accuracy_of_known: float | None  # of the top-ranked relation, on questions whose relation was taught
    relations: dict[str, RelationScore]
    confusion: dict[tuple[str | None, str | None], int]  # (truth, answer) -> count
    untaught: tuple[str, ...] = ()  # relations of the file that were never taught
    n_taught: int = 0  # questions that were taught; their answers are better than those to new sentences


@dataclass(frozen=True, slots=True)
class TripleEvaluation:
    """Extracted triples compared with the annotated ones of the same texts, overall and by relation."""

    n_texts: int
    overall: RelationScore
    relations: dict[str, RelationScore]
    untaught: tuple[str, ...] = ()  # annotated relations that were never taught; their triples do not count


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A sentence that may hold a relation; `example` can be taught as it is."""

    example: Example
    confidence: float  # in the relation
    similarity: float | None = None  # of a sentence of a corpus, to the taught example that led to it
