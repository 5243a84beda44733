"""The extractor: teach relations, predict them in text, and keep every change as a version on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any, overload

from erda.answers import (
    Answer,
    Evaluation,
    Explanation,
    Extraction,
    Progress,
    Suggestion,
    Taught,
    TripleEvaluation,
    Tuned,
)
from erda.app import teach
from erda.app.entities import Entities
from erda.app.evaluation import Labelled, evaluate, evaluate_extraction, labelled_cells, read_questions, tuned
from erda.app.inputs import ExampleInput, Teachable, Teaching, check_bool, example_of, read_many, read_one, types_of
from erda.app.review_journal import purge_reviews
from erda.app.state import Judgement, Lesson, VersionInfo
from erda.app.texts import AnnotatedText, read_annotated
from erda.app.version import TOP, Version
from erda.app.version_log import Builder, VersionLog, save_copy
from erda.data.formats.row_collector import Reading
from erda.encoders.contract import Encoder
from erda.errors import DataError
from erda.files import user_path
from erda.methods import find_method
from erda.types import Example, Relation


class Extractor:
    """A relation extractor that learns from a few sentences per relation. Every change is a version on disk.

    `Extractor.open(folder)` opens or creates an extractor. Its current `version` is immutable; teaching replaces it.
    Threads can share an extractor. Among several processes, one teaches at a time.
    """

    def __init__(self, folder: Path, builder: Builder) -> None:
        self._log = VersionLog(folder, builder)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        method: str | None = None,
        method_settings: Mapping[str, Any] | None = None,
        encoder: str | Encoder | None = None,
        encoder_settings: Mapping[str, Any] | None = None,
        device: str = "cpu",
        version: int | None = None,
        relearn: bool = False,
        progress: Progress | None = None,
    ) -> Extractor:
        """Open the extractor in a folder. If there is none, the first teaching creates it.

        A method or an encoder that differs from the store's, weights included, is rejected. With `relearn`, all
        examples are taught to it as a new version; the same happens when the encoder's background has changed.
        `version` first makes that version the current one, which also repairs a store whose current version is damaged.
        """
        if not str(folder).strip() or "\0" in str(folder):
            raise DataError(f"No folder can be called {str(folder)!r}.")
        if method is not None:
            method = find_method(method).name
        builder = Builder(method, method_settings or {}, encoder, encoder_settings or {}, device)
        extractor = cls(user_path(folder), builder)
        extractor._log.load(version, relearn=relearn, progress=progress)
        return extractor

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self._log.store.folder

    @property
    def version(self) -> Version:
        """The current version: an immutable snapshot, whatever is taught later."""
        return self._log.current

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The known relations, in the order of teaching."""
        return self.version.relations

    def examples(self, relation: str) -> tuple[Lesson, ...]:
        """The examples of a relation; `take_back` accepts their numbers."""
        return self.version.known(relation).lessons

    def counterexamples(self, relation: str) -> tuple[Lesson, ...]:
        """The counterexamples of a relation; `take_back` accepts their numbers."""
        return self.version.known(relation).counterexamples

    @property
    def unrelated(self) -> tuple[Lesson, ...]:
        """The taught sentences in which no relation holds; `take_back` accepts their numbers."""
        return self.version.state.unrelated

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is also an iterable of str
        self,
        given: ExampleInput,
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Answer: ...
    @overload
    def predict(
        self,
        given: Iterable[ExampleInput],
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> list[Answer]: ...
    def predict(
        self,
        given: ExampleInput | Iterable[ExampleInput],
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Answer | list[Answer]:
        """Predict the relation between the two marked entities of a sentence, or of each sentence of a list.

        `min_confidence` replaces the default threshold and those of `tune`.
        """
        options: dict[str, Any] = {"top": top, "min_confidence": min_confidence, "progress": progress}
        if isinstance(given, str | Example | Mapping):
            return self.version.predict([given], **options)[0]
        return self.version.predict(given, **options)

    def extract(
        self,
        text: str,
        entities: Entities = None,
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        pronouns: bool = True,
    ) -> Extraction:
        """Predict the relations between all entities of a text that share a sentence (`Version.extract`)."""
        return self.version.extract(text, entities, top=top, min_confidence=min_confidence, pronouns=pronouns)

    def explain(self, given: ExampleInput) -> Explanation:
        """Explain an answer by similar examples and influential words (`Version.explain`)."""
        return self.version.explain(given)

    def evaluate(
        self,
        questions: str | Path | Reading | Iterable[ExampleInput],
        *,
        no_relation: Collection[str] = (),
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Compare answers with the truth: a file of examples in any known format, or a list of examples.

        A relation named in `no_relation` means that no relation holds.
        """
        asked = read_questions(questions, no_relation)
        return evaluate(self.version, asked, min_confidence=min_confidence, progress=progress)

    def evaluate_extraction(
        self,
        texts: str | Path | Iterable[AnnotatedText | Mapping[str, Any]],
        *,
        find_entities: bool = False,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> TripleEvaluation:
        """Compare extracted triples with those of annotated texts (`erda.app.texts`): precision, recall, F1.

        The annotated entities are given to `extract`, unless a tagger is to `find_entities`.
        """
        asked: dict[str, Any] = {"find_entities": find_entities, "min_confidence": min_confidence, "progress": progress}
        return evaluate_extraction(self.version, read_annotated(texts), **asked)

    def suggest(
        self,
        relation: str,
        texts: str | Path | Iterable[str],
        *,
        n: int = 10,
        pronouns: bool = True,
        progress: Progress | None = None,
    ) -> list[Suggestion]:
        """Suggest sentences as examples of a relation, most useful first.

        `texts` are a list of texts, a file of texts (.txt, .jsonl, .csv), or the folder of a corpus (`erda corpus`).
        Pairs that were taught, judged or shown in a review are left out.
        """
        from erda.app.candidates import suggest

        return suggest(self.version, relation, texts, store=self.folder, n=n, pronouns=pronouns, progress=progress)

    # -- teaching ------------------------------------------------------------------------------------------------------

    def teach(
        self,
        relation: str | Relation,
        examples: Iterable[ExampleInput] = (),
        *,
        counterexamples: Iterable[ExampleInput] = (),
        unrelated: Iterable[ExampleInput] = (),
        description: str = "",
        progress: Progress | None = None,
    ) -> Taught:
        """Teach one relation by examples, and by counterexamples in which it does not hold.

        In `unrelated` sentences no known relation holds. Lines of `description` that mark both entities are patterns,
        which count as sentences of the relation: `description="who began a company\\n[[X]] was founded by {{Y}}."`.

        Teaching a known relation adds to its examples. Examples already taught are skipped; an example taught as
        another relation, or as a counterexample of this one, moves.
        """
        some: dict[str, Any] = {"examples": examples, "counterexamples": counterexamples, "unrelated": unrelated}
        return self._add(partial(read_one, relation, description=description, **some), progress)

    def teach_many(
        self,
        what: Teachable,
        *,
        counterexamples: Iterable[ExampleInput] = (),
        unrelated: Iterable[ExampleInput] = (),
        progress: Progress | None = None,
    ) -> Taught:
        """Teach several relations in one version: a mapping of relations to examples, or examples with relations.

        A `Task` is taught unchanged, duplicates included. Each counterexample names the relation that does not hold;
        a row with `"holds": false` is one. In `unrelated` sentences no known relation holds, as in examples whose
        relation is `no_relation`.
        """
        return self._add(partial(read_many, what, counterexamples=counterexamples, unrelated=unrelated), progress)

    def judge(self, example: ExampleInput, relation: str, *, holds: bool = True) -> Taught:
        """Say whether a known relation holds in a sentence: it becomes an example or a counterexample.

        The same sentence judged the other way moves. A counterexample does not change what the method has learned.
        """
        return self.judge_many([Judgement(example_of(example), relation, holds)])

    def judge_many(self, judgements: Iterable[Judgement]) -> Taught:
        """Judge several sentences (`judge`) in one version."""
        return self._add(partial(teach.judged, judgements))

    def _add(self, read: Callable[[Sequence[Relation]], Teaching], progress: Progress | None = None) -> Taught:
        """Add a teaching. It is read while no other process writes: its names depend on the known relations."""
        with self._log.writing(begin=True) as before:
            new = read(before.relations)
            after, report = teach.added(before, new)
            version = self._log.learn(after, progress)
            if version.number == before.stamp.number:
                return report
            version.warn_of_language(one.tokens for one in new.examples)
            doubted = [] if new.is_task or new.is_judged else teach.reversed_examples(after, self._log.encoder)
            return replace(report, version=version.number, warnings=tuple(map(teach.reversal_warning, doubted)))

    def reversed_examples(self, relation: str, examples: Iterable[ExampleInput]) -> list[Example]:
        """Find the examples whose head and tail look exchanged, compared with the others; nothing is taught."""
        state = self._log.state
        new = read_one(relation, state.relations, examples=examples)
        return teach.reversed_examples(teach.added(state, new)[0], self._log.encoder)

    # -- corrections ---------------------------------------------------------------------------------------------------

    def take_back(self, example: int | ExampleInput, *, progress: Progress | None = None) -> int:
        """Undo the teaching of one example, selected by its number or content; return the new version.

        Counterexamples and sentences without a relation are taken back in the same way. The extractor is then as if
        the example had never been taught.
        """
        return self.take_back_many([example], progress=progress)

    def take_back_many(self, examples: Iterable[int | ExampleInput], *, progress: Progress | None = None) -> int:
        """Take several examples back (`take_back`) in one version."""
        chosen = list(examples)
        return self._log.change(lambda state: teach.taken_back(state, chosen), progress)

    def forget(self, relation: str) -> int:
        """Drop a relation and its examples, which earlier versions still hold; return the new version."""
        return self._log.forget(relation)

    def rename(self, relation: str, new_name: str | Relation, *, progress: Progress | None = None) -> int:
        """Rename a relation; its examples and description stay. Return the new version."""
        return self._log.change(lambda state: teach.renamed(state, relation, new_name), progress)

    def merge(self, relation: str, into: str, *, progress: Progress | None = None) -> int:
        """Move all examples and patterns of one relation into another, and drop the first; return the new version."""
        return self._log.change(lambda state: teach.combined(state, relation, into), progress)

    def describe(self, relation: str, description: str, *, progress: Progress | None = None) -> int:
        """Replace the description of a relation, or remove it with an empty text; return the current version.

        Lines that mark both entities are patterns, as in `teach`: `"who began it\\n[[X]] was founded by {{Y}}."`.
        """
        return self._log.change(lambda state: teach.redescribed(state, relation, description), progress)

    def declare(
        self,
        relation: str,
        *,
        head_types: Iterable[str] | EllipsisType | None = ...,
        tail_types: Iterable[str] | EllipsisType | None = ...,
    ) -> int:
        """Declare the entity types of a relation, which replace those that are learned from examples.

        None or an empty list clears them. Return the current version.
        """
        given = {"head_types": head_types, "tail_types": tail_types}
        types = {name: types_of(one, name) for name, one in given.items() if not isinstance(one, EllipsisType)}
        return self._log.change(lambda state: teach.declared(state, relation, **types))

    def tune(
        self,
        labelled: Labelled,
        *,
        precision: float = 0.9,
        no_relation: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Tuned:
        """Fit confidence thresholds so that this share of the answers is right; store them in a new version.

        `labelled` is a file or a list of examples, as for `evaluate`: rows of `no_relation` and rows with
        `"holds": false` are the negatives. Annotated texts (`erda.app.texts`) tune `extract` instead of `predict`.
        Later teaching keeps the thresholds. If no threshold reaches the precision, nothing changes, and
        `DataError` names the highest possible precision.
        """
        with self._log.writing() as before:
            cells = labelled_cells(self._log.current, labelled, no_relation=no_relation, progress=progress)
            thresholds, report = tuned(self._log.current, cells, precision)
            after = before.changed(f"tuned for a precision of {precision:g}", thresholds=thresholds)
            return replace(report, version=self._log.learn(after).number)

    def clear_thresholds(self) -> int:
        """Drop the thresholds of `tune`; return the current version."""
        return self._log.change(lambda state: state.changed("dropped the thresholds", thresholds=None))

    # -- versions ------------------------------------------------------------------------------------------------------

    def undo(self) -> int:
        """Return to the version before the current one; return its number."""
        return self._log.point(None)

    def rollback(self, version: int) -> int:
        """Make any version on disk the current one. Later versions stay on disk."""
        return self._log.point(version)

    def history(self) -> list[VersionInfo]:
        """List all versions on disk, oldest first."""
        return self._log.store.history() if self._log.store.exists() else []

    def prune(self, *, keep: int = 1, purge: bool = False) -> int:
        """Remove all versions except the last `keep` and the current one; return the number of removed versions.

        `purge` removes every trace of forgotten relations and examples: it rewrites the current version without a
        past and removes all others.
        """
        check_bool(purge, "purge")
        if type(keep) is not int or keep < 0:
            raise DataError(f"keep: must be at least 0, got {keep!r:.80}.")
        with self._log.writing() as state:
            if not purge:
                numbers = self._log.store.numbers()
                return self._log.store.prune(numbers[max(len(numbers) - keep, 0) :])
            purge_reviews(self.folder, state.known)
            return self._log.purge(state)

    def refresh(self) -> int:
        """Load what another process has taught; return the number of the current version."""
        return self._log.refresh()

    def save(self, folder: str | Path) -> None:
        """Write the current version as a new store without history. This extractor stays in its folder."""
        save_copy(self.version.state, user_path(folder))

    def export(self, folder: str | Path, *, engine: str | None = None) -> Path:
        """Write the current version as a folder that answers without erda (`erda.app.export`)."""
        from erda.app.export import export

        return export(self.version, folder, engine=engine)
