"""The extractor: teach relations, predict them in text, and keep every change as a version on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
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
from erda.app.candidates import purge_reviews
from erda.app.entities import Entities
from erda.app.evaluation import Labelled, evaluate, evaluate_extraction, labelled_cells, read_questions, tuned
from erda.app.inputs import Given, check_bool, example_of, known_relation, refuse_sentence, types_of
from erda.app.state import NOTHING, Declaration, Judgement, Lesson, Setup, State, VersionInfo, now
from erda.app.store import Store, forget, undo
from erda.app.teach import (
    Teachable,
    Wanted,
    added,
    declared,
    described,
    judged,
    listed,
    merged,
    renamed,
    taken_back,
    wanted,
)
from erda.app.texts import AnnotatedText, read_annotated
from erda.app.version import NOTHING_TAUGHT, TOP, Version
from erda.app.version_log import Asked, VersionLog
from erda.encoders.base import Encoder
from erda.errors import DataError
from erda.files import remove_left_lock, user_path
from erda.methods import find_method
from erda.types import NO_RELATION, Relation, Task


class Extractor:
    """A relation extractor that learns from a few sentences per relation. Every change is a version on disk.

    `Extractor.open(folder)` opens or creates an extractor. Its current `version` is immutable; teaching replaces it.
    Threads can share an extractor. Among several processes, one teaches at a time.
    """

    def __init__(self, folder: Path, asked: Asked) -> None:
        self._log = VersionLog(folder, asked)

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
        asked = Asked(method, method_settings or {}, encoder, encoder_settings or {}, device)
        extractor = cls(user_path(folder), asked)
        store = extractor._log.store
        if version is not None:
            store.refuse_missing(version)
            with store.writing(mend=True):
                store.point(version)
        if store.exists():
            if relearn:
                extractor._log.relearn(progress)
            else:
                extractor.refresh()
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
        self, given: Given, *, top: int = TOP, min_confidence: float | None = None, progress: Progress | None = None
    ) -> Answer: ...
    @overload
    def predict(
        self,
        given: Iterable[Given],
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> list[Answer]: ...
    def predict(
        self,
        given: Given | Iterable[Given],
        *,
        top: int = TOP,
        min_confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Answer | list[Answer]:
        """Predict the relation between the two marked entities of a sentence, or of each sentence of a list.

        `min_confidence` replaces the default threshold and those of `tune`.
        """
        return self.version.predict(given, top=top, min_confidence=min_confidence, progress=progress)

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

    def explain(self, given: Given) -> Explanation:
        """Explain an answer by similar examples and influential words (`Version.explain`)."""
        return self.version.explain(given)

    def evaluate(
        self,
        questions: str | Path | Iterable[Given],
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
        found = read_annotated(user_path(texts) if isinstance(texts, str) else texts)
        return evaluate_extraction(
            self.version, found, find_entities=find_entities, min_confidence=min_confidence, progress=progress
        )

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
        examples: Iterable[Given] = (),
        *,
        counterexamples: Iterable[Given] = (),
        unrelated: Iterable[Given] = (),
        description: str = "",
        progress: Progress | None = None,
    ) -> Taught:
        """Teach one relation by examples, and by counterexamples in which it does not hold.

        In `unrelated` sentences no known relation holds. Lines of `description` that mark both entities are patterns,
        which count as sentences of the relation: `description="who began a company\\n[[X]] was founded by {{Y}}."`.

        Teaching a known relation adds to its examples. Examples already taught are skipped; an example taught as
        another relation, or as a counterexample of this one, moves.
        """
        if isinstance(relation, Task | Iterable) and not isinstance(relation, str):
            raise DataError("teach() takes one relation and its examples; teach several relations with teach_many().")
        return self._teach(
            relation,
            progress,
            examples=examples,
            counterexamples=counterexamples,
            unrelated=unrelated,
            description=description,
        )

    def teach_many(
        self,
        what: Task | Mapping[Any, Iterable[Given]] | Iterable[Given],
        *,
        counterexamples: Iterable[Given] = (),
        unrelated: Iterable[Given] = (),
        progress: Progress | None = None,
    ) -> Taught:
        """Teach several relations in one version: a mapping of relations to examples, or examples with relations.

        A `Task` is taught unchanged, duplicates included. Each counterexample names the relation that does not hold;
        a row with `"holds": false` is one. In `unrelated` sentences no known relation holds, as in examples whose
        relation is `no_relation`.
        """
        if isinstance(what, str | Relation) or not isinstance(what, Task | Iterable):
            raise DataError("teach_many() takes a mapping, examples or a Task; teach one relation with teach().")
        return self._teach(what, progress, counterexamples=counterexamples, unrelated=unrelated)

    def judge(self, example: Given, relation: str, *, holds: bool = True) -> Taught:
        """Say whether a known relation holds in a sentence: it becomes an example or a counterexample.

        The same sentence judged the other way moves. A counterexample does not change what the method has learned.
        """
        refuse_sentence(relation)
        return self.judge_many([Judgement(example_of(example), relation, holds)])

    def judge_many(self, judgements: Iterable[Judgement]) -> Taught:
        """Judge several sentences (`judge`) in one version."""
        given = list(judgements)
        return self._add(lambda: judged(given, self.relations))

    def _teach(
        self, what: Teachable, progress: Progress | None, *, description: str = "", **sentences: Iterable[Given]
    ) -> Taught:
        given, some = listed(what), {kind: listed(one) for kind, one in sentences.items()}

        def read() -> tuple[Wanted, str]:
            new = wanted(given, self.relations, description=description, **some)
            return new, f"taught {', '.join(one.id for one in new.relations) or NO_RELATION}"

        return self._add(read, progress, as_it_stands=isinstance(what, Task))

    def _add(
        self, read: Callable[[], tuple[Wanted, str]], progress: Progress | None = None, *, as_it_stands: bool = False
    ) -> Taught:
        """Add a teaching. It is read again if another process has changed the relations before the lock was free."""
        if self._log.store.exists():
            self.refresh()
        (new, said), known = read(), self.relations
        with self._log.writing(begin=True) as before:
            if self.relations != known:
                new, said = read()
            stamp = before.stamp
            addition = added(
                before.known,
                before.unrelated,
                new,
                teaching=stamp.n_teachings,
                n_lessons=stamp.n_lessons,
                by_name=reads_names(stamp.setup),
                as_it_stands=as_it_stands,
            )
            if (addition.known, addition.unrelated) == (before.known, before.unrelated):
                return Taught(stamp.number, duplicates=addition.duplicates)
            done = addition.taught(before.known, stamp.number)
            if not any((done.new, done.moved, *addition.n_new)):
                said = f"described {', '.join(done.described)}"
            counted = replace(stamp, what=said, n_teachings=stamp.n_teachings + 1, n_lessons=addition.n_lessons)
            after = replace(before, stamp=counted, known=addition.known, unrelated=addition.unrelated)
            return addition.taught(before.known, self._log.learn(after, progress).number)

    # -- corrections ---------------------------------------------------------------------------------------------------

    def take_back(self, example: int | Given, *, progress: Progress | None = None) -> int:
        """Undo the teaching of one example, selected by its number or content; return the new version.

        Counterexamples and sentences without a relation are taken back in the same way. The extractor is then as if
        the example had never been taught.
        """
        return self.take_back_many([example], progress=progress)

    def take_back_many(self, examples: Iterable[int | Given], *, progress: Progress | None = None) -> int:
        """Take several examples back (`take_back`) in one version."""
        chosen = list(examples)
        with self._log.writing() as before:
            if not chosen:
                return before.stamp.number
            by_name, after, places = reads_names(before.stamp.setup), before, dict[str, None]()
            for one in chosen:
                rest = taken_back(after.known, after.unrelated, one, by_name=by_name)
                after = replace(after, known=rest.known, unrelated=rest.unrelated)
                places |= dict.fromkeys(rest.places)
            n = "an example" if len(chosen) == 1 else f"{len(chosen)} examples"
            return self._change(after, f"took back {n} of {', '.join(places)}", progress)

    def forget(self, relation: str) -> int:
        """Drop a relation and its examples, which earlier versions still hold; return the new version."""
        return self._log.edit(lambda store: forget(store, relation))

    def rename(self, relation: str, new_name: str | Relation, *, progress: Progress | None = None) -> int:
        """Rename a relation; its examples and description stay. Return the new version."""
        with self._log.writing() as before:
            old = known_relation(relation, self._log.current.relations)
            after = renamed(before.known, old, new_name)
            new = next(one.id for one, was in zip(after, before.known, strict=True) if was.relation is old)
            thresholds = before.thresholds and before.thresholds.renamed(old.id, new)
            state = replace(before, known=after, thresholds=thresholds)
            return self._change(state, f"renamed {old.id} to {new}", progress)

    def merge(self, relation: str, into: str, *, progress: Progress | None = None) -> int:
        """Move all examples and patterns of one relation into another, and drop the first; return the new version."""
        with self._log.writing() as before:
            source, target = (known_relation(one, self._log.current.relations) for one in (relation, into))
            after = merged(before.known, source.id, target.id)
            return self._change(replace(before, known=after), f"merged {source.id} into {target.id}", progress)

    def describe(self, relation: str, description: str, *, progress: Progress | None = None) -> int:
        """Replace the description of a relation, or remove it with an empty text; return the current version.

        Lines that mark both entities are patterns, as in `teach`: `"who began it\\n[[X]] was founded by {{Y}}."`.
        """
        with self._log.writing() as before:
            found = known_relation(relation, self._log.current.relations)
            after = described(before.known, found, description)
            if after == before.known:
                return before.stamp.number
            done = "described" if description.strip() else "removed the description of"
            return self._change(replace(before, known=after), f"{done} {found.id}", progress)

    def _change(self, after: State, what: str, progress: Progress | None = None) -> int:
        return self._log.learn(replace(after, stamp=replace(after.stamp, what=what)), progress).number

    def declare(
        self,
        relation: str,
        *,
        symmetric: bool | EllipsisType = ...,
        inverse: str | EllipsisType | None = ...,
        head_types: Iterable[str] | EllipsisType | None = ...,
        tail_types: Iterable[str] | EllipsisType | None = ...,
    ) -> int:
        """Declare what is always true of a relation; return the current version. None or an empty value clears.

        A symmetric relation holds in both directions (spouse). The inverse says the same the other way round (parent,
        child): the two relations name each other. `extract` reports such a pair once. `head_types` and `tail_types`
        replace the entity types that are learned from examples.
        """
        with self._log.writing() as before:
            relations = self._log.current.relations
            found = known_relation(relation, relations)
            old = next(one for one in before.known if one.relation is found)
            if not isinstance(inverse, str | EllipsisType | None):
                raise DataError(f"inverse: expected the name of a relation, got {inverse!r:.80}.")
            other = known_relation(inverse, relations).id if isinstance(inverse, str) and inverse.strip() else None
            if not isinstance(symmetric, EllipsisType):
                check_bool(symmetric, "symmetric")
            new = Declaration(
                old.symmetric if isinstance(symmetric, EllipsisType) else symmetric,
                old.inverse if inverse is ... else other,
                old.head_types if isinstance(head_types, EllipsisType) else types_of(head_types, "head_types"),
                old.tail_types if isinstance(tail_types, EllipsisType) else types_of(tail_types, "tail_types"),
            )
            after = declared(before.known, found.id, new)
            if after == before.known:
                return before.stamp.number
            return self._change(replace(before, known=after), f"declared {found.id}")

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
            said = f"tuned for a precision of {precision:g}"
            return replace(report, version=self._change(replace(before, thresholds=thresholds), said))

    def clear_thresholds(self) -> int:
        """Drop the thresholds of `tune`; return the current version."""
        with self._log.writing() as before:
            if before.thresholds is None:
                return before.stamp.number
            return self._change(replace(before, thresholds=None), "dropped the thresholds")

    # -- versions ------------------------------------------------------------------------------------------------------

    def undo(self) -> int:
        """Return to the version before the current one; return its number."""
        return self._log.edit(lambda store: undo(store).parent or 0)

    def rollback(self, version: int) -> int:
        """Make any version on disk the current one. Later versions stay on disk."""
        with self._log.writing():
            found = self._log.at(version)
            self._log.store.point(version)
            self._log.current = found
            return version

    def history(self) -> list[VersionInfo]:
        """List all versions on disk, oldest first."""
        store = self._log.store
        return store.history() if store.exists() else []

    def prune(self, *, keep: int = 1, purge: bool = False) -> int:
        """Remove all versions except the last `keep` and the current one; return the number of removed versions.

        `purge` removes every trace of forgotten relations and examples: it rewrites the current version without a
        past and removes all others.
        """
        check_bool(purge, "purge")
        if type(keep) is not int or keep < 0:
            raise DataError(f"keep: must be at least 0, got {keep!r:.80}.")
        with self._log.writing() as state:
            log = self._log
            if not purge:
                numbers = log.store.numbers()
                return log.store.prune(numbers[max(len(numbers) - keep, 0) :])
            purge_reviews(self.folder, state.known)
            stamp = replace(state.stamp, parent=None, what="removed what was forgotten", time=now())
            known = tuple(replace(one, origin="", merged=()) for one in state.known)  # they hold former names
            written = log.store.write(replace(state, stamp=stamp, known=known), near=state)
            log.at_hand.clear()
            log.current = log.keep(written)
            return log.store.prune(())

    def refresh(self) -> int:
        """Load what another process has taught; return the number of the current version."""
        return self._log.refresh()

    def save(self, folder: str | Path) -> None:
        """Write the current version as a new store without history. This extractor stays in its folder."""
        store, state = Store(user_path(folder)), self.version.state
        if state.stamp.setup is NOTHING:
            raise DataError(NOTHING_TAUGHT)
        if store.exists():
            remove_left_lock(store.folder)
            raise DataError(f"{folder} holds an extractor already; name another folder.")
        with store.writing(begin=True):
            store.write(replace(state, stamp=replace(state.stamp, parent=None)))

    def export(self, folder: str | Path, *, engine: str | None = None) -> Path:
        """Write the current version as a folder that answers without erda (`erda.app.export`)."""
        from erda.app.export import export

        return export(self.version, folder, engine=engine)


def reads_names(setup: Setup) -> bool:
    """Whether the method can learn a relation from its name alone."""
    return find_method(setup.method).reads_names and bool(setup.settings.get("name_weight", True))
