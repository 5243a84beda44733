"""The extractor: teach relations, predict them in text, and keep every change as a version on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from erda.app.annotated import AnnotatedText, read_annotated
from erda.app.answers import (
    Answer,
    Change,
    Evaluation,
    Explanation,
    Extraction,
    Progress,
    Suggestion,
    Taught,
    TripleEvaluation,
)
from erda.app.corrections import Corrections, reads_names
from erda.app.entities import Entities
from erda.app.evaluation import compare, evaluate, evaluate_extraction, read_questions
from erda.app.inputs import Given, check_bool, example_of, refuse_lookalikes, refuse_sentence
from erda.app.lesson_changes import added
from erda.app.lessons import Judgement, Lesson, Teachable, Wanted, judged, listed, wanted
from erda.app.review_journal import purge_reviews
from erda.app.setup import Asked
from erda.app.state import NOTHING, TAUGHT_BY_0_1, VersionInfo, now
from erda.app.store import Store
from erda.app.store_edits import undo
from erda.app.version import NOTHING_TAUGHT, TOP, Version
from erda.app.version_log import VersionLog
from erda.encoders.contract import Encoder
from erda.errors import DataError
from erda.files import remove_left_lock, user_path
from erda.methods import find_method
from erda.types import NO_RELATION, Relation, Task


class Extractor(Corrections):
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
        """Compare extracted triples with those of annotated texts (`erda.app.annotated`): precision, recall, F1.

        The annotated entities are given to `extract`, unless a tagger is to `find_entities`.
        """
        found = read_annotated(user_path(texts) if isinstance(texts, str) else texts)
        return evaluate_extraction(
            self.version, found, find_entities=find_entities, min_confidence=min_confidence, progress=progress
        )

    def compare(self, before: int, after: int, questions: str | Path | Iterable[Given]) -> list[Change]:
        """List the questions that two versions answer differently."""
        asked = read_questions(questions)
        with self._log.lock:
            versions = self._log.at(before), self._log.at(after)
        return compare(*versions, asked)

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
            refuse_lookalikes(new.relations, self.relations)
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
        if state.is_old:
            raise DataError(f"{self.folder}: {TAUGHT_BY_0_1}")
        with store.writing(begin=True):
            store.write(replace(state, stamp=replace(state.stamp, parent=None)))

    def export(self, folder: str | Path, *, engine: str | None = None) -> Path:
        """Write the current version as a folder that answers without erda (`erda.app.export`)."""
        from erda.app.export import export

        return export(self.version, folder, engine=engine)
