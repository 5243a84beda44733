"""A version of an extractor: an immutable snapshot that answers questions.

Any number of threads can share a version while the extractor goes on learning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import overload

import numpy as np

from erda.app.answers import Answer, Explanation, Extraction, Neighbour, Progress, Ranked, TextPlace, WordEffect
from erda.app.calibration import CALIBRATIONS, LEAST_KNOWN, Calibration
from erda.app.derived import DerivedArrays
from erda.app.entities import GIVEN, Entities, tagged_sentences
from erda.app.inputs import MOST_CHARACTERS, Given, example_of, examples_of, known_relation
from erda.app.lessons import Known
from erda.app.state import TAUGHT_BY_0_1, State
from erda.encoders.base import unit_rows
from erda.errors import DataError
from erda.methods.base import Method
from erda.text.keys import entity_key
from erda.text.names import NameTagger
from erda.text.pairs import ordered_pairs
from erda.text.pronouns import is_pronoun, may_be_related, with_pronouns
from erda.types import Entity, Example, Relation, Span

NOTHING_TAUGHT = "Nothing was taught yet: begin with teach(relation, examples)."
TOP = 5  # ranked relations per answer
AT_ONCE = 1024  # questions between two calls of `progress`
MOST_PAIRS = 10_000  # of a text
COMPARED = 3  # relations whose examples an explanation compares
MOST_COMPARED = 20  # examples compared per relation


@dataclass(frozen=True, slots=True)
class PairQuestions:
    """The pairs of entities of a text that `extract` asks about, with their places in it."""

    examples: tuple[Example, ...]
    places: tuple[TextPlace, ...]
    tagger: str
    n_entities: int
    n_left_out: int
    hint: str = ""

    def answered(self, answers: Iterable[Answer]) -> Extraction:
        """The extraction, given an answer to each example."""
        placed = tuple(replace(one, place=place) for one, place in zip(answers, self.places, strict=True))
        return Extraction(placed, self.tagger, self.n_entities, self.n_left_out, self.hint)


class Version:
    """The state of an extractor after one change. `build` builds its method at the first question."""

    def __init__(
        self,
        state: State,
        build: Callable[[State], Method],
        method: Method | None = None,
        derived: DerivedArrays | None = None,
    ) -> None:
        self.state = state
        self._build, self._lock, self._method, self._derived = build, Lock(), method, derived

    @property
    def number(self) -> int:
        """Number of the version, for `rollback` and `compare`."""
        return self.state.stamp.number

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The known relations, in the order of teaching."""
        return tuple(one.relation for one in self.state.known)

    @property
    def method(self) -> Method:
        """The method of this version; do not call its `learn`."""
        with self._lock:
            if self._method is None:
                if self.state.is_old:
                    raise DataError(f"Version {self.number} {TAUGHT_BY_0_1}")
                if not self.state.known:
                    raise DataError(NOTHING_TAUGHT)
                self._method = self._build(self.state)
            return self._method

    @property
    def built(self) -> Method | None:
        """The method if it is built already."""
        return self._method

    @cached_property
    def _fitted(self) -> Method:
        """The method, fitted: with the arrays on disk, which are written if they are missing."""
        method = self.method
        if self._derived is not None and (found := self._derived.load()) is not None:
            method.use_derived(found)
        elif self._derived is not None:
            self._derived.save(method.derived())
        return method

    @cached_property
    def calibration(self) -> Calibration:
        """The calibration that converts scores to confidences."""
        return CALIBRATIONS[self.method.score_kind].given([len(one.lessons) for one in self.state.known])

    @cached_property
    def _exemplars(self) -> dict[str | None, Example]:
        return {one.relation: one for one in self.method.kept}

    def known(self, relation: str) -> Known:
        """A relation, by its id or name, with its examples."""
        found = known_relation(relation, self.relations)
        return next(one for one in self.state.known if one.relation is found)

    # -- questions -----------------------------------------------------------------------------------------------------

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text is many texts to Python
        self, given: Given, *, top: int = TOP, progress: Progress | None = None
    ) -> Answer: ...
    @overload
    def predict(self, given: Iterable[Given], *, top: int = TOP, progress: Progress | None = None) -> list[Answer]: ...
    def predict(
        self, given: Given | Iterable[Given], *, top: int = TOP, progress: Progress | None = None
    ) -> Answer | list[Answer]:
        """Predict the relation between the two marked entities of a sentence, or of each sentence of a list."""
        if isinstance(given, str | Example | Mapping):
            return self._answers(examples_of([given]), top=top)[0]
        questions, answers = examples_of(given), list[Answer]()
        for start in range(0, len(questions), AT_ONCE):
            answers += self._answers(questions[start : start + AT_ONCE], top=top)
            if progress:
                progress(len(answers), len(questions))
        return answers

    def extract(self, text: str, entities: Entities = None, *, top: int = TOP, pronouns: bool = True) -> Extraction:
        """Predict the relation of every ordered pair of entities that share a sentence of a text.

        `entities` are names, or character offsets (`Mark`). Without them a tagger finds them: the pipeline of
        `erda data get entities`, an installed pipeline of spaCy, else capital letters and the names in taught examples.
        `pronouns` are asked about as well (`erda.text.pronouns`), except beside offsets, which name every mention.
        """
        questions = self.questions(text, entities, pronouns=pronouns)
        return questions.answered(self.predict(questions.examples, top=top))

    def questions(self, text: str, entities: Entities = None, *, pronouns: bool = True) -> PairQuestions:
        """List the entity pairs of a text that `extract` asks about."""
        taught = self._taught_names if entities is None else None
        tagged = tagged_sentences(text, entities, taught=taught)
        is_asked = may_be_related if pronouns and tagged.tagger != GIVEN else None
        sentences = with_pronouns(text, tagged.sentences) if is_asked else iter(tagged.sentences)
        pairs, places, n_entities, n_left_out = list[Example](), list[TextPlace](), 0, 0
        for sentence, with_names in zip(sentences, tagged.sentences, strict=True):
            found = ordered_pairs(sentence.tokens, sentence.entities, most=MOST_PAIRS - len(pairs), is_asked=is_asked)
            if sum(map(len, sentence.tokens)) > MOST_CHARACTERS // 4:  # so that `predict` does not reject other texts
                examples_of(found.examples)
            pairs += found.examples
            places += [
                TextPlace(*sentence.characters(one.head.span), *sentence.characters(one.tail.span))
                for one in found.examples
            ]
            n_entities += len({entity_key(one.name, one.id) for one in with_names.entities})
            n_left_out += found.n_left_out
        hint = tagged.hint if n_entities else f"No entity was found in the text. {tagged.hint}".strip()
        return PairQuestions(tuple(pairs), tuple(places), tagged.tagger, n_entities, n_left_out, hint)

    @cached_property
    def _taught_names(self) -> NameTagger | None:
        found = (entity for one in self.state.known for entity in _entities(one))
        names = {entity.name: entity.id for entity in found if not is_pronoun(entity.name)}
        return NameTagger(names) if names else None

    def explain(self, given: Given) -> Explanation:
        """Explain an answer by the most similar taught examples and by the effect of each word."""
        example = replace(example_of(given), relation=None)
        shorter = list(_without_a_word(example))
        answer, *others = self._answers([example, *(one for _, one in shorter)], top=len(self.relations))
        best = answer.ranked[0].relation
        effects = [
            WordEffect(example.tokens[place], place, other.relation, _confidence(other, best) - answer.confidence)
            for (place, _), other in zip(shorter, others, strict=True)
        ]
        effects.sort(key=lambda effect: -abs(effect.change))
        near = [one.relation for one in answer.ranked[:COMPARED]]
        lessons = [one.example for name in near for one in self.known(name).lessons[:MOST_COMPARED]]
        vectors = unit_rows(self.method.encoder.embed([example, *lessons]))
        similarities = (vectors[1:] @ vectors[0]).tolist()
        nearest = [Neighbour(one, value) for one, value in zip(lessons, similarities, strict=True)]
        nearest.sort(key=lambda one: -one.similarity)
        short = Answer(example, answer.relation, answer.ranked[:TOP])
        return Explanation(short, tuple(nearest[:TOP]), tuple(effects))

    def _answers(self, questions: Sequence[Example], *, top: int) -> list[Answer]:
        if not questions:
            return []
        predictions = self._fitted.predict(questions)
        confidences = self.calibration.confidences(predictions.scores)
        known = confidences.sum(axis=1) >= LEAST_KNOWN
        exemplars = self._exemplars
        ranks = np.argsort(-predictions.scores, axis=1, kind="stable")[:, : max(top, 1)]
        answers = []
        for row, (question, columns) in enumerate(zip(questions, ranks.tolist(), strict=True)):
            ranked = tuple(
                Ranked(
                    name := predictions.relations[column],
                    float(confidences[row, column]),
                    float(predictions.scores[row, column]),
                    exemplars.get(name),
                )
                for column in columns
            )
            answers.append(Answer(question, ranked[0].relation if known[row] else None, ranked))
        return answers


def _confidence(answer: Answer, relation: str) -> float:
    return next(one.confidence for one in answer.ranked if one.relation == relation)


def _entities(known: Known) -> Iterable[Entity]:
    return (entity for lesson in known.lessons for entity in (lesson.example.head, lesson.example.tail))


def _without_a_word(example: Example) -> Iterable[tuple[int, Example]]:
    """Yield the index of each word outside the entities, and the example without that word."""
    for place in range(len(example.tokens)):
        if any(one.span.start <= place < one.span.end for one in (example.head, example.tail)):
            continue
        tokens = (*example.tokens[:place], *example.tokens[place + 1 :])
        head, tail = (_shifted(one, place) for one in (example.head, example.tail))
        yield place, Example(tokens, head, tail)


def _shifted(entity: Entity, place: int) -> Entity:
    start, end = entity.span.start, entity.span.end
    return entity if end <= place else replace(entity, span=Span(start - 1, end - 1))
