"""The extractor that people teach: the calls of the benchmark's loop for one's own text, with versions on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, overload

import numpy as np

from erda.app.answers import (
    Answer,
    Change,
    Evaluation,
    Explanation,
    Extraction,
    Progress,
    Suggestion,
    Taught,
    VersionInfo,
)
from erda.app.entities import Entities
from erda.app.evaluation import compare, evaluate, read_questions
from erda.app.inputs import Given, known_relation, refuse_lookalikes
from erda.app.lessons import Known, Lesson, Teachable, added, taken_back, wanted
from erda.app.setup import Asked, Builder, without_engine
from erda.app.state import NOTHING, TAUGHT_BY_0_1, Setup, Stamp, State
from erda.app.store import Store
from erda.app.teaching import relearned, replayed
from erda.app.version import NOTHING_TAUGHT, TOP, Version
from erda.encoders.base import Encoder
from erda.errors import DataError, ErdaError, ModelError
from erda.files import user_path
from erda.methods import find_method
from erda.methods.base import Method
from erda.types import Example, Relation, Task

AT_HAND = 2  # versions in memory beside the current one, so that undoing is at once


class Extractor:
    """Relations taught one after another, by a few sentences each; every teaching is a version on the disk.

    `Extractor.open(folder)` opens or begins one. What answers is `version`, which never changes: a teaching puts
    another in its place. Threads may share an extractor; of several processes, one teaches at a time.
    """

    def __init__(self, folder: Path, asked: Asked) -> None:
        self._store, self._builder = Store(folder), Builder(asked)
        self._lock = RLock()
        self._at_hand: dict[int, Version] = {}
        self._current = Version(State(Stamp(0, None, _now(), "begun", NOTHING)), self._build)

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
        """The extractor in a folder; where there is none, a new one, which the first teaching writes.

        A method or an encoder other than the store's, or other weights of the same, are refused; with `relearn` all
        examples that are known are taught to them, or over a background that was made since, as a new version.
        `version` makes that one the current one first, which also mends a store whose current version is damaged.
        """
        if not str(folder).strip() or "\0" in str(folder):
            raise DataError(f"No folder can be called {str(folder)!r}.")
        if method is not None:
            method = find_method(method).name
        asked = Asked(method, method_settings or {}, encoder, encoder_settings or {}, device)
        extractor = cls(user_path(folder), asked)
        if version is not None:
            extractor._store.refuse_missing(version)
            with extractor._store.writing(mend=True):
                extractor._store.point(version)
        if extractor._store.exists():
            if relearn:
                extractor._relearn(progress)
            else:
                extractor.refresh()
        return extractor

    # -- what it knows -------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self._store.folder

    @property
    def version(self) -> Version:
        """What answers now: a snapshot that stays as it is, whatever is taught later."""
        return self._current

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations that it knows, in the order in which they were taught."""
        return self._current.relations

    def examples(self, relation: str) -> tuple[Lesson, ...]:
        """What a relation was taught by; the number of each serves to take it back."""
        return self._current.known(relation).lessons

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text is many texts to Python
        self, given: Given, *, top: int = TOP, progress: Progress | None = None
    ) -> Answer: ...
    @overload
    def predict(self, given: Iterable[Given], *, top: int = TOP, progress: Progress | None = None) -> list[Answer]: ...
    def predict(
        self, given: Given | Iterable[Given], *, top: int = TOP, progress: Progress | None = None
    ) -> Answer | list[Answer]:
        """The relation between the marked entities of a sentence; of each of several, in their order."""
        return self._current.predict(given, top=top, progress=progress)

    def extract(self, text: str, entities: Entities = None, *, top: int = TOP) -> Extraction:
        """The relations between all entities of a text that share a sentence (`Version.extract`)."""
        return self._current.extract(text, entities, top=top)

    def explain(self, given: Given) -> Explanation:
        """Why an answer is what it is (`Version.explain`)."""
        return self._current.explain(given)

    def evaluate(self, questions: str | Path | Sequence[Example], *, progress: Progress | None = None) -> Evaluation:
        """Its answers beside the truth: of a file of examples in any known format, or of examples."""
        return evaluate(self._current, read_questions(questions), progress=progress)

    def compare(self, before: int, after: int, questions: str | Path | Sequence[Example]) -> list[Change]:
        """Which of these questions two versions answer differently."""
        asked = read_questions(questions)
        with self._lock:
            versions = self._at(before), self._at(after)
        return compare(*versions, asked)

    def suggest(self, relation: str, corpus: str | Path, *, n: int = 10) -> list[Suggestion]:
        """Sentences of a corpus (`erda corpus`) that may hold a relation, the most useful to be told about first."""
        from erda.app.suggesting import suggest

        return suggest(self._current, relation, user_path(corpus), n=n)

    # -- teaching ------------------------------------------------------------------------------------------------------

    def teach(
        self,
        relation: str | Relation,
        examples: Iterable[Given] = (),
        *,
        description: str = "",
        progress: Progress | None = None,
    ) -> Taught:
        """Teach one relation by examples.

        A known relation learns more. Examples already taught are skipped; an example taught as another relation
        moves to this one.
        """
        if isinstance(relation, Task | Iterable) and not isinstance(relation, str):
            raise DataError("teach() takes one relation and its examples; teach several relations with teach_many().")
        return self._teach(relation, examples, description, progress)

    def teach_many(
        self, what: Task | Mapping[Any, Iterable[Given]] | Iterable[Given], *, progress: Progress | None = None
    ) -> Taught:
        """Teach several relations in one version: a mapping of relations to examples, or examples with relations.

        A `Task` is taught unchanged, duplicates included.
        """
        if isinstance(what, str | Relation) or not isinstance(what, Task | Iterable):
            raise DataError("teach_many() takes a mapping, examples or a Task; teach one relation with teach().")
        return self._teach(what, (), "", progress)

    def _teach(self, what: Teachable, examples: Iterable[Given], description: str, progress: Progress | None) -> Taught:
        if self._store.exists():
            self.refresh()
        new = wanted(what, examples, description, self.relations)
        with self._writing(begin=True) as before:
            refuse_lookalikes(new.relations, self.relations)
            stamp = before.stamp
            addition = added(
                before.known,
                new,
                teaching=stamp.n_teachings,
                n_lessons=stamp.n_lessons,
                by_name=_reads_names(stamp.setup),
                as_it_stands=isinstance(what, Task),
            )
            if addition.known == before.known:
                return Taught(stamp.number, duplicates=addition.duplicates)
            said = f"taught {', '.join(one.id for one in new.relations)}"
            counted = replace(stamp, what=said, n_teachings=stamp.n_teachings + 1, n_lessons=addition.n_lessons)
            version = self._learn(addition.known, counted, progress)
            known = {one.id for one in before.known}
            return Taught(
                version.number,
                tuple(one.id for one in addition.known if one.id not in known),
                addition.n_lessons - stamp.n_lessons,
                addition.duplicates,
                addition.moved,
                addition.forgotten,
            )

    def take_back(self, example: int | Given, *, progress: Progress | None = None) -> int:
        """Undo the teaching of one example, by its number (`examples`) or as it was given; the new version's number.

        The extractor is then what it would be, had the example never been taught.
        """
        with self._writing() as before:
            after = taken_back(before.known, example, by_name=_reads_names(before.stamp.setup))
            owners = [one.id for one, was in zip(after, before.known, strict=True) if one != was]
            said = f"took back an example of {', '.join(owners)}"
            return self._learn(after, replace(before.stamp, what=said), progress).number

    def forget(self, relation: str) -> int:
        """Drop a relation and its examples, which earlier versions still have; the new version's number."""
        with self._writing() as before:
            gone = known_relation(relation, self.relations).id
            after = [one for one in before.known if one.id != gone]
            return self._learn(after, replace(before.stamp, what=f"forgot {gone}")).number

    # -- versions ------------------------------------------------------------------------------------------------------

    def undo(self) -> int:
        """Go back to what was known before the current version; the number of the version that is current now."""
        with self._writing() as now:
            if now.stamp.parent is None:
                raise DataError("There is nothing to undo: this is the first version.")
            return self._go_to(now.stamp.parent)

    def rollback(self, version: int) -> int:
        """Make any version on the disk the current one; the later ones stay, and can be gone to again."""
        with self._writing():
            return self._go_to(version)

    def history(self) -> list[VersionInfo]:
        """Every version on the disk, the oldest first."""
        return self._store.history() if self._store.exists() else []

    def prune(self, *, keep: int = 1, purge: bool = False) -> int:
        """Remove all versions but the last `keep` and the current one; the number of removed versions.

        `purge` removes every trace of what was forgotten or taken back: the current version is written again without
        a past, and all others are removed.
        """
        if keep < 0:
            raise DataError(f"keep: must be at least 0, got {keep}.")
        with self._writing() as now:
            if not purge:
                numbers = self._store.numbers()
                return self._store.prune(numbers[max(len(numbers) - keep, 0) :])
            stamp = replace(now.stamp, parent=None, what="removed what was forgotten", time=_now())
            state = self._store.write(replace(now, stamp=stamp), near=now)
            self._at_hand.clear()
            self._current = self._keep(state)
            return self._store.prune(())

    def refresh(self) -> int:
        """Look whether another process taught something, and take it over; the number of the current version."""
        with self._lock:
            newest = self._newest()
            if self._current.state.stamp.setup is NOTHING:  # another process may have begun it with something else
                self._refuse_other(newest.state.stamp.setup)
            self._current = newest
            return newest.number

    def save(self, folder: str | Path) -> None:
        """Write what is known now as a store of its own, without what came before; this one stays where it is."""
        store, state = Store(user_path(folder)), self._current.state
        if state.stamp.setup is NOTHING:
            raise DataError(NOTHING_TAUGHT)
        if store.exists():
            raise DataError(f"{folder} holds an extractor already; name another folder.")
        if state.is_old:
            raise DataError(f"{self.folder}: {TAUGHT_BY_0_1}")
        with store.writing(begin=True):
            store.write(replace(state, stamp=replace(state.stamp, parent=None)))

    def export(self, folder: str | Path, *, engine: str | None = None) -> Path:
        """Write what is known now as a folder that answers without erda (`erda.app.export`)."""
        from erda.app.export import export

        return export(self._current, folder, engine=engine)

    # -- inside --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, *, begin: bool = False, take_over: bool = False) -> Iterator[State]:
        """The current state on disk, while no other thread or process teaches.

        Only `begin` starts a new store, and only `take_over` changes one that erda 0.1.0 wrote.
        """
        with self._lock:
            blank = self._current
            is_new = blank.state.stamp.setup is NOTHING and not self._store.exists()
            if is_new and not begin:
                raise DataError(NOTHING_TAUGHT)
            try:
                with self._store.writing(begin=is_new):
                    if is_new and not self._store.exists():
                        self._store.write(State(replace(blank.state.stamp, setup=self._builder.setup())))
                    self.refresh()
                    if not take_over:
                        self._store.refuse_old(self._store.head())
                    yield self._current.state
            except BaseException:
                if is_new:
                    self._current = blank
                    self._at_hand.clear()
                raise

    def _learn(self, known: Sequence[Known], stamp: Stamp, progress: Progress | None = None) -> Version:
        """The next version: what the method makes of `known`, written, then put in the place of the current one."""
        before = self._current.state
        setup, method = before.stamp.setup, None
        if known:
            method = relearned(
                self._current.method if before.known else self._builder.blank(setup),
                before.known,
                known,
                teaching=before.stamp.n_teachings,
                blank=lambda: self._builder.blank(setup),
                progress=progress,
            )
        return self._write(known, stamp, method)

    def _write(self, known: Sequence[Known], stamp: Stamp, method: Method | None) -> Version:
        before = self._current.state
        stamp = replace(stamp, parent=before.stamp.number, time=_now())
        if method is None:
            state = State(stamp)
        else:
            state = State(stamp, tuple(sorted(known, key=lambda one: method.index[one.id])), method.checkpoint())
        self._current = self._keep(self._store.write(state, near=before), method)
        return self._current

    def _go_to(self, number: int) -> int:
        version = self._at(number)
        self._store.point(number)
        self._current = version
        return number

    def _newest(self) -> Version:
        """The current version of the disk."""
        for _ in range(2):
            head = self._store.head()
            try:
                return self._at(head.current)
            except ErdaError:  # pruned while it was read, unless it is still the current one
                if self._store.head() == head:
                    raise
        return self._at(self._store.head().current)

    def _at(self, number: int) -> Version:
        """A version on disk, from memory if that is the same one: a store can be replaced by a backup of itself."""
        at_hand = self._at_hand.pop(number, None)
        if at_hand and at_hand.state.stamp.identity == self._store.identity(number):
            self._at_hand[number] = at_hand  # the last to go
            return at_hand
        return self._keep(self._store.read(number, near=self._current.state))

    def _keep(self, state: State, method: Method | None = None) -> Version:
        version = Version(state, self._build, method)
        self._at_hand[version.number] = version
        for number in [one for one in self._at_hand if one != self._current.number][:-AT_HAND]:
            del self._at_hand[number]
        return version

    def _build(self, state: State) -> Method:
        method = self._builder.blank(state.stamp.setup)
        if state.learned is not None:
            method.restore(state.learned)
        return method

    def _refuse_other(self, stored: Setup) -> None:
        """Refuse a store that was taught to something else than what was asked for."""
        if self._builder.asked.is_met_by(stored):
            return
        setup = self._builder.setup(stored)
        if setup != stored:
            raise ModelError(
                f"{self.folder} was taught to method '{stored.method}' over encoder {_with_engine(stored)}, not to "
                f"'{setup.method}' over {_with_engine(setup)} with these settings. Leave them out, or open it with "
                "relearn=True (erda teach --relearn) to teach all its examples again."
            )

    def _relearn(self, progress: Progress | None) -> None:
        """Teach everything to what was asked for, where the store has something else or another background."""
        self._current = self._newest()
        stored, is_old = self._current.state.stamp.setup, self._current.state.is_old
        setup = self._builder.setup(without_engine(stored) if is_old else stored)
        learned = self._current.state.learned
        blank = self._builder.blank(setup)
        new = blank.taken_over()
        kept = learned.shared if learned else new
        same = all(name in kept and np.array_equal(kept[name], one) for name, one in new.items())
        if not is_old and setup == stored and same:
            return
        with self._writing(take_over=True) as before:
            method = replayed(blank, before.known, progress=progress) if before.known else None
            what = f"taught everything to {setup.method} over {setup.encoder.name}"
            self._write(before.known, replace(before.stamp, what=what, setup=setup), method)


def _reads_names(setup: Setup) -> bool:
    return find_method(setup.method).reads_names and bool(setup.settings.get("name_weight", True))


def _with_engine(setup: Setup) -> str:
    engine = setup.encoder.settings.get("engine")
    return f"'{setup.encoder.name}'" + (f" (engine {engine})" if engine else "")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
