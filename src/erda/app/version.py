"""A version of an extractor: an immutable snapshot that answers questions.

Any number of threads can share a version while the extractor continues to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from erda.answers import Answer, Explanation, Extraction, Neighbour, Progress, WordEffect
from erda.app.calibration import CALIBRATIONS, MARKED, Calibration, Scored
from erda.app.entities import Entities, find_tagger, tagged_sentences
from erda.app.inputs import ExampleInput, example_of, examples_of, known_relation
from erda.app.open_text import open_head
from erda.app.questions import PairQuestions
from erda.app.state import State, TaughtRelation, judged_pairs
from erda.encoders.contract import Encoder, unit_rows
from erda.errors import DataError
from erda.methods.base import Method
from erda.methods.open_head import OpenHead
from erda.methods.openness import fitted_score
from erda.methods.posterior import Posterior
from erda.text.language import warn_of_language
from erda.text.marks import check_text
from erda.text.names import NameTagger
from erda.text.pronouns import is_pronoun
from erda.types import Entity, Example, Judged, Relation, Span

if TYPE_CHECKING:
    from erda.app.store import Store

ENGLISH_ENCODERS = ("open", "open-mpnet", "minilm", "mpnet")
NOTHING_TAUGHT = "No relation is known: teach one first."
TOP = 5  # ranked relations per answer
AT_ONCE = 1024  # questions between two calls of `progress`
COMPARED = 3  # relations whose examples an explanation compares
MOST_COMPARED = 20  # examples compared per relation


class Version:
    """The state of an extractor after one change. `build` builds its method at the first question."""

    def __init__(
        self,
        state: State,
        build: Callable[[State], Method],
        method: Method | None = None,
        store: Store | None = None,
    ) -> None:
        self.state = state
        self._build, self._lock, self._method, self._store = build, Lock(), method, store

    @property
    def number(self) -> int:
        """Number of the version, for `rollback`."""
        return self.state.stamp.number

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The known relations, in the order of teaching."""
        return self.state.relations

    @property
    def method(self) -> Method:
        """The method of this version; do not call its `learn`."""
        with self._lock:
            if self._method is None:
                if not self.state.known:
                    raise DataError(NOTHING_TAUGHT)
                self._method = self._build(self.state)
            return self._method

    @property
    def built(self) -> Method | None:
        """The method if it is built already."""
        return self._method

    @cached_property
    def fitted(self) -> tuple[Method, OpenHead | None]:
        """The method and its open-text head, fitted: from the arrays on disk, which are written if they are missing."""
        method, identity = self.method, self.state.stamp.identity
        if self._store is not None and (found := self._store.read_derived(identity)) is not None:
            method.use_derived(found)
            return method, OpenHead.from_arrays(found) if OpenHead.is_in(found) else None
        head = open_head(method, self.state)
        if self._store is not None:
            self._store.write_derived(identity, {**method.derived(), **(head.arrays() if head else {})})
        return method, head

    @cached_property
    def _typed(self) -> tuple[Method, OpenHead | None]:
        """As `fitted`, with a head whose untyped taught examples get types from the installed tagger."""
        method = self.method if self._store is None else self.fitted[0]
        tag = find_tagger().of_tokens
        return (method, open_head(method, self.state, tag)) if tag else self.fitted

    @cached_property
    def calibration(self) -> Calibration:
        """The calibration that converts scores to confidences."""
        return CALIBRATIONS[self.method.score_kind].given([len(one.lessons) for one in self.state.known])

    def least_confidence(self, head: OpenHead | None, *, in_text: bool) -> float | list[float] | None:
        """The default threshold of marked pairs, or of all pairs of texts; `tune` sets one for each relation.

        None if all relations together must be likely.
        """
        tuned = self.state.thresholds
        if tuned and tuned.in_text == in_text:
            return [tuned.of(one.id) for one in self.state.known]
        return None if head is None else float(fitted_score()["threshold"]) if in_text else MARKED

    @cached_property
    def judged(self) -> Judged:
        """What people said about entity pairs; it decides the answers about them."""
        return judged_pairs(self.state)

    def known(self, relation: str) -> TaughtRelation:
        """A relation, by its id or name, with its examples."""
        found = known_relation(relation, self.relations)
        return next(one for one in self.state.known if one.relation is found)

    # -- questions -----------------------------------------------------------------------------------------------------

    def predict(
        self,
        given: Iterable[ExampleInput],
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> list[Answer]:
        """Predict the relation between the two marked entities of each sentence of a list.

        `min_confidence` replaces the thresholds of the version and the default.
        """
        questions, answers = examples_of(given), list[Answer]()
        self.warn_of_language(one.tokens for one in questions)
        for start in range(0, len(questions), AT_ONCE):
            some = questions[start : start + AT_ONCE]
            answers += self.answer_pairs(some, top=top, min_confidence=min_confidence)
            if progress:
                progress(len(answers), len(questions))
        return answers

    def extract(
        self,
        text: str,
        entities: Entities = None,
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        pronouns: bool = True,
    ) -> Extraction:
        """Predict the relation of every ordered pair of entities that share a sentence of a text.

        `entities` are names, or character offsets (`Mark`). Without them, the pipeline of `erda data get entities` or
        an installed one of spaCy finds them, together with capital letters and the names in taught examples.
        `pronouns` are asked about as well (`erda.text.pronouns`), except beside offsets, which name every mention.
        """
        asked = [self.questions(text, entities, pronouns=pronouns)]
        return self.answer_texts(asked, top=top, min_confidence=min_confidence)[0]

    def answer_texts(
        self, texts: Sequence[PairQuestions], *, top: int = TOP, min_confidence: float | None = None
    ) -> list[Extraction]:
        """Answer the questions of several texts; pairs of a sentence with the same head compete."""
        found: dict[int, Extraction] = {}
        for tagged in (True, False):
            some = [(i, one) for i, one in enumerate(texts) if one.tagger.startswith("spacy:") == tagged]
            answers = iter(
                self.answer_pairs(
                    [example for _, one in some for example in one.examples],
                    [(i, example.tokens) for i, one in some for example in one.examples],
                    top=top,
                    min_confidence=min_confidence,
                    tagged=tagged,
                )
            )
            found |= {i: one.answered(islice(answers, len(one.examples))) for i, one in some}
        return [found[i] for i in range(len(texts))]

    def over(self, encoder: Encoder) -> Version:
        """Return this version over another encoder with the same weights, such as a caching one."""
        method, head = self.fitted
        other = Version(self.state, self._build, forked(method))
        other.method.encoder = encoder
        other.judged, other.fitted = self.judged, (other.method, head)
        return other

    def questions(self, text: str, entities: Entities = None, *, pronouns: bool = True) -> PairQuestions:
        """List the entity pairs of a text that `extract` asks about."""
        tagged = tagged_sentences(text, entities, taught=self.taught_names)
        note = self.warn_of_language(one.tokens for one in tagged.sentences)
        return PairQuestions.of(text, tagged, pronouns=pronouns, note=note)

    def questions_of(self, given: Sequence[tuple[str, Entities]], *, pronouns: bool = True) -> list[PairQuestions]:
        """List the entity pairs of several texts; a tagger reads those without entities together."""
        texts = [text for text, entities in given if entities is None]
        for text in texts:
            check_text(text, most=None)
        found = iter(find_tagger().many(texts, self.taught_names) if texts else ())
        pairs = ((text, next(found) if entities is None else entities) for text, entities in given)
        return [self.questions(*both, pronouns=pronouns) for both in pairs]

    def warn_of_language(self, sentences: Iterable[Sequence[str]]) -> str:
        """Warn if most of the sentences are not English, but the encoder is; return the warning."""
        return warn_of_language(sentences) if self.state.stamp.setup.encoder.name in ENGLISH_ENCODERS else ""

    @cached_property
    def taught_names(self) -> NameTagger:
        """Finds the entities of the taught examples in other texts."""
        taught = (lesson.example for one in self.state.known for lesson in one.lessons)
        found = (entity for example in taught for entity in (example.head, example.tail))
        return NameTagger({entity.name: entity.id for entity in found if not is_pronoun(entity.name)})

    def explain(self, given: ExampleInput) -> Explanation:
        """Explain an answer by the most similar taught examples and by the effect of each word."""
        example = replace(example_of(given), relation=None)
        words = words_outside(example)
        asked = [example, *(_without_word(example, place) for place, _ in words)]
        answer, *others = self.answer_pairs(asked, top=len(self.relations), by_score=True)
        best, confidence = answer.ranked[0].relation, answer.ranked[0].confidence
        changes = [{one.relation: one.confidence for one in other.ranked}[best] - confidence for other in others]
        effects = [
            WordEffect(word, place, other.relation, change)
            for (place, word), other, change in zip(words, others, changes, strict=True)
        ]
        effects.sort(key=lambda effect: -abs(effect.change))
        near = [one.relation for one in answer.ranked[:COMPARED]]
        lessons = [one.example for name in near for one in self.known(name).lessons[:MOST_COMPARED]]
        vectors = unit_rows(self.method.encoder.embed([example, *lessons]))
        similarities = (vectors[1:] @ vectors[0]).tolist()
        nearest = [Neighbour(one, value) for one, value in zip(lessons, similarities, strict=True)]
        nearest.sort(key=lambda one: -one.similarity)
        (answer,) = self.answer_pairs([example], top=TOP)
        return Explanation(answer, tuple(nearest[:TOP]), tuple(effects))

    def answer_pairs(
        self,
        questions: Sequence[Example],
        sentences: Sequence[Hashable] | None = None,
        *,
        top: int,
        min_confidence: float | None = None,
        tagged: bool = False,
        by_score: bool = False,
    ) -> list[Answer]:
        """Answer pairs that a person marked, or all pairs of some sentences, of which `sentences` are the keys.

        `tagged`: the installed tagger adds types to untyped taught examples. `by_score` ignores what people said about
        these very pairs.
        """
        if not questions:
            return []
        if min_confidence is not None and not 0 <= min_confidence <= 1:
            raise DataError(f"min_confidence: must be between 0 and 1, got {min_confidence}.")
        found = self._scored(questions, sentences, tagged=tagged)
        found = found if by_score else found.settled(questions, self.judged)
        exemplars = {str(one.relation): one for one in self.method.kept}
        return found.answers(questions, top=top, min_confidence=min_confidence, exemplars=exemplars)

    def _scored(self, questions: Sequence[Example], sentences: Sequence[Hashable] | None, *, tagged: bool) -> Scored:
        """Scores and confidences of pairs that a person marked, or of all pairs of some `sentences`."""
        method, head = self._typed if tagged else self.fitted
        least = self.least_confidence(head, in_text=sentences is not None)
        if head is None or not isinstance(method, Posterior):
            predictions = method.predict(questions)
            confidences = self.calibration.confidences(predictions.scores)
            return Scored(predictions.relations, predictions.scores, confidences, least)
        vectors = method.vectors(questions)
        scores = method.fitted.scores(vectors).astype(np.float32)
        return Scored(tuple(method.index), scores, head.confidences(scores, vectors, questions, sentences), least)


def words_outside(example: Example) -> list[tuple[int, str]]:
    """List the words outside the two entities, with their places."""
    spans = example.head.span, example.tail.span
    places = enumerate(example.tokens)
    return [(place, word) for place, word in places if not any(one.start <= place < one.end for one in spans)]


def _without_word(example: Example, place: int) -> Example:
    def moved(entity: Entity) -> Entity:
        start, end = entity.span.start, entity.span.end
        return entity if end <= place else replace(entity, span=Span(start - 1, end - 1))

    tokens = (*example.tokens[:place], *example.tokens[place + 1 :])
    return Example(tokens, moved(example.head), moved(example.tail))


def forked(method: Method) -> Method:
    """Copy a method so that it can learn independently. Immutable parts are shared; a trained encoder is copied."""
    other = copy(method)
    other.rows = {name: dict(rows) for name, rows in method.rows.items()}
    other.shared = dict(method.shared)
    if method.trains and method.encoder.trained_state():
        other.encoder = deepcopy(method.encoder)
    return other
