"""The versions of one extractor: read from disk, cached in memory, and extended by the next version.

A new version is as if the method had only ever learned its examples (`_relearned`): new examples are learned on top, by
the same `learn` as in the benchmark; a relation that lost an example, or has a new name or description, is relearned
from its own examples. If the method trains the encoder, all relations are relearned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from erda.answers import Progress
from erda.app.state import NOTHING, Setup, Stamp, State, TaughtRelation, now
from erda.app.store import Store
from erda.app.version import NOTHING_TAUGHT, Version, forked
from erda.encoders import BY_MODE, build_encoder, encoder_settings
from erda.encoders.contract import Encoder
from erda.errors import DataError, ErdaError, ModelError
from erda.files import remove_left_lock
from erda.methods import DEFAULT_METHOD, find_method
from erda.methods.base import Checkpoint, Method
from erda.types import EncoderSpec, Task

DEFAULT_ENCODER, TRAINED_ENCODER = "open", "minilm"  # of methods that train it
RETIRED = "packaged"  # engine of an int8 file of `minilm` or `mpnet` that no longer exists


@dataclass(eq=False)
class Builder:
    """Builds the requested method and encoder; unset fields come from the store, or are defaults.

    Each encoder is loaded once, at first use.
    """

    method: str | None = None
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    encoder: str | Encoder | None = None
    encoder_settings: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        own = [self.encoder] if isinstance(self.encoder, Encoder) else []
        self._encoders = {_key(one.spec): one for one in own}

    def is_met_by(self, stored: Setup) -> bool:
        """Whether the stored setup meets the request; no weights are loaded."""
        spec = stored.encoder
        own = self.encoder.spec == spec if isinstance(self.encoder, Encoder) else self.encoder in (None, spec.name)
        return (
            own
            and self.method in (None, stored.method)
            and self.method_settings.items() <= stored.settings.items()
            and self.encoder_settings.items() <= spec.settings.items()
        )

    def setup(self, stored: Setup = NOTHING) -> Setup:
        """The requested setup, completed by the stored one and by defaults."""
        name = self.method or stored.method or DEFAULT_METHOD
        kind, encoder = find_method(name), self.encoder
        if not isinstance(encoder, Encoder):
            before = "" if _is_retired(stored.encoder) else stored.encoder.name
            model = str(encoder or before or (TRAINED_ENCODER if kind.trains else DEFAULT_ENCODER))
            is_stored = model == before
            own = dict[str, Any](stored.encoder.settings if is_stored else {})
            as_before = is_stored and "engine" in own and find_method(stored.method).trains == kind.trains
            if not as_before and "trained_layers" in encoder_settings(model).model_fields:  # a transformer
                own |= {"trained_layers": BY_MODE if kind.trains else 0, "engine": "torch"}
            encoder = build_encoder(model, device=self.device, **{**own, **self.encoder_settings})
        self._encoders[_key(encoder.spec)] = encoder
        kept = stored.settings if stored.method == name else {}
        method = kind.from_settings(encoder, {**kept, **self.method_settings})
        return Setup(name, method.settings(), encoder.spec)

    def blank(self, setup: Setup) -> Method:
        """Build an untrained method; a method that trains gets its own copy of the encoder."""
        kind, encoder = find_method(setup.method), self._encoder(setup.encoder)
        return kind.from_settings(deepcopy(encoder) if kind.trains else encoder, setup.settings)

    def _encoder(self, spec: EncoderSpec) -> Encoder:
        if (key := _key(spec)) not in self._encoders:
            given = dict[str, Any](spec.settings)
            built = None if _is_retired(spec) else build_encoder(spec.name, device=self.device, **given)
            if built is None or built.spec.fingerprint != spec.fingerprint:
                found = f"not {built.spec.fingerprint[:8]}" if built else "which this version of erda does not have"
                raise ModelError(
                    f"The extractor was taught over other weights of encoder '{spec.name}' ({spec.fingerprint[:8]}, "
                    f"{found}). Open it with relearn=True (erda teach --relearn) to teach all its examples again."
                )
            self._encoders[key] = built
        return self._encoders[key]


def _is_retired(spec: EncoderSpec) -> bool:
    return spec.settings.get("engine") == RETIRED


def _key(spec: EncoderSpec) -> str:
    return f"{spec.name} {spec.fingerprint} {sorted(spec.settings.items())}"


class VersionLog:
    """All versions of an extractor. `current` answers questions and is never modified, only replaced.

    Threads can share a log. Among several processes, one writes at a time.
    """

    def __init__(self, folder: Path, builder: Builder) -> None:
        self.store, self.builder, self.lock = Store(folder), builder, RLock()
        self.current = Version(State(Stamp(0, None, now(), "begun", NOTHING)), self._build)

    @property
    def state(self) -> State:
        """The state of the current version; before the first teaching, with the requested setup."""
        state = self.current.state
        if state.stamp.setup is not NOTHING:
            return state
        return replace(state, stamp=replace(state.stamp, setup=self.builder.setup()))

    @property
    def encoder(self) -> Encoder:
        """The encoder of the current version, or the one that a first teaching will use."""
        state = self.state
        return self.current.method.encoder if state.known else self.builder.blank(state.stamp.setup).encoder

    def load(self, version: int | None, *, relearn: bool, progress: Progress | None) -> None:
        """Load the store if there is one; make `version` the current one first, or `relearn` all examples."""
        if version is not None:
            self.point(version, check=self.builder.setup if relearn else self._refuse_other)
        if self.store.exists():
            self.relearn(progress) if relearn else self.refresh()

    @contextmanager
    def writing(self, *, begin: bool = False) -> Iterator[State]:
        """Yield the current state on disk while no other thread or process writes.

        Only `begin` creates a new store.
        """
        with self.lock:
            blank = self.current
            is_new = blank.state.stamp.setup is NOTHING and not self.store.exists()
            if is_new and not begin:
                raise DataError(NOTHING_TAUGHT)
            try:
                with self.store.writing(begin=is_new):
                    if is_new and not self.store.exists():
                        self.store.write(State(replace(blank.state.stamp, setup=self.builder.setup())))
                    self.refresh()
                    yield self.current.state
            except BaseException:
                if is_new:
                    self.current = blank
                raise

    def change(self, change: Callable[[State], State], progress: Progress | None = None) -> int:
        """Change the state; return the number of the current version."""
        with self.writing() as before:
            return self.learn(change(before), progress).number

    def learn(self, after: State, progress: Progress | None = None) -> Version:
        """Train the method on `after.known`, write the result as the next version, and make it current.

        If only counterexamples, unrelated sentences, thresholds or declarations change, the method stays as it is; if
        nothing changes, there is no new version.
        """
        before, known = self.current.state, after.known
        if (known, after.unrelated, after.thresholds) == (before.known, before.unrelated, before.thresholds):
            return self.current
        if [one.learned_from for one in known] == [one.learned_from for one in before.known]:
            return self._write(replace(after, learned=before.learned), self.current.built)
        method = self._relearned(known, progress) if known else None
        return self._write(_with_method(after, method), method)

    def _relearned(self, after: Sequence[TaughtRelation], progress: Progress | None) -> Method:
        """Return a method that has learned `after`; that of the current version stays unchanged."""
        before, blank = self.current.state, partial(self.builder.blank, self.current.state.stamp.setup)
        method, teaching = self.current.method if before.known else blank(), before.stamp.n_teachings
        earlier = {
            one.id: replace(one, lessons=tuple(lesson for lesson in one.lessons if lesson.teaching < teaching))
            for one in after
            if one.since < teaching
        }
        known = {one.id: one.learned_from for one in before.known}
        changed = [one for one in earlier.values() if one.learned_from != known.get(one.id)]
        if changed and method.trains:
            learner = replayed(blank(), list(earlier.values()), progress=progress)
        else:
            learner = forked(method)
            for relation in sorted(known.keys() - earlier.keys()):
                learner.forget(relation)
            if changed:
                fresh = replayed(blank(), changed, progress=progress)
                learner.restore(_merged(learner.checkpoint(), fresh.checkpoint(), [*earlier]))
        if (new := _task(after, teaching, learner.n_tasks)) is not None:
            learner.learn(new)
        return learner

    def _write(self, after: State, method: Method | None) -> Version:
        before = self.current.state
        if after.thresholds:
            gone = {one.id for one in before.known} - {one.id for one in after.known}
            after = replace(after, thresholds=after.thresholds.without(*gone))
        stamp = replace(after.stamp, parent=before.stamp.number, time=now())
        self.current = self.made(self.store.write(replace(after, stamp=stamp)), method)
        return self.current

    def refresh(self) -> int:
        """Load the current version from disk; return its number."""
        with self.lock:
            newest = self._newest()
            if self.current.state.stamp.setup is NOTHING:  # another process may have created it with another setup
                self._refuse_other(newest.state.stamp.setup)
            self.current = newest
            return newest.number

    def _newest(self) -> Version:
        """Read the version that the store names, unless it is in memory; its identity tells it from a backup."""
        while True:
            head = self.store.head()
            try:
                if self.store.version_file(head.current).stamp.identity == self.current.state.stamp.identity:
                    return self.current
                return self.made(self.store.read(head.current))
            except ErdaError:  # another process pruned it during the read, unless it is still current
                if self.store.head() == head:
                    raise

    def point(self, number: int | None, *, check: Callable[[Setup], object] = id) -> int:
        """Make a version the current one (None: the one before), once it is read and its setup passes the `check`.

        The files of the version that was current are not needed.
        """
        if number is not None:
            self.store.refuse_missing(number)
        elif self.current.state.stamp.setup is NOTHING and not self.store.exists():
            raise DataError(NOTHING_TAUGHT)
        with self.lock, self.store.writing(mend=number is not None):
            number = self.store.before() if number is None else number
            found = self.made(self.store.read(number, mend=True))
            check(found.state.stamp.setup)
            self.store.point(number)
            self.current = found
            return number

    def forget(self, relation: str) -> int:
        """Drop a relation with its examples; the files of the others are not needed."""
        if self.current.state.stamp.setup is NOTHING and not self.store.exists():
            raise DataError(NOTHING_TAUGHT)
        with self.lock, self.store.writing():
            self.store.forget(relation)
        return self.refresh()

    def purge(self, state: State) -> int:
        """Write the current version without a past, and remove all others; return the number of removed versions."""
        stamp = replace(state.stamp, parent=None, what="removed what was forgotten", time=now())
        known = tuple(replace(one, origin="", merged=()) for one in state.known)  # they hold former names
        self.current = self.made(self.store.write(replace(state, stamp=stamp, known=known)))
        return self.store.prune(())

    def made(self, state: State, method: Method | None = None) -> Version:
        """A version of this store."""
        return Version(state, self._build, method, self.store)

    def _build(self, state: State) -> Method:
        method = self.builder.blank(state.stamp.setup)
        if state.learned is not None:
            method.restore(state.learned)
        return method

    def _refuse_other(self, stored: Setup) -> None:
        """Reject a requested method or encoder that differs from those of the store."""
        if self.builder.is_met_by(stored):
            return
        if (setup := self.builder.setup(stored)) != stored:
            raise ModelError(
                f"{self.store.folder} was taught to method '{stored.method}' over encoder {_with_engine(stored)}, not "
                f"to '{setup.method}' over {_with_engine(setup)} with these settings. Leave them out, or open it with "
                "relearn=True (erda teach --relearn) to teach all its examples again."
            )

    def relearn(self, progress: Progress | None) -> None:
        """Teach all examples to the requested setup if it, or its background, differs from that of the store."""
        self.current = self._newest()
        stored = self.current.state.stamp.setup
        setup = self.builder.setup(stored)
        learned = self.current.state.learned
        blank = self.builder.blank(setup)
        new = blank.taken_over()
        kept = learned.shared if learned else new
        same = all(name in kept and np.array_equal(kept[name], one) for name, one in new.items())
        if setup == stored and same:
            return
        with self.writing() as before:
            method = replayed(blank, before.known, progress=progress) if before.known else None
            what = f"taught everything to {setup.method} over {setup.encoder.name}"
            after = replace(before, stamp=replace(before.stamp, what=what, setup=setup))
            self._write(_with_method(after, method), method)


def save_copy(state: State, folder: Path) -> None:
    """Write a version as a new store without history."""
    store = Store(folder)
    if state.stamp.setup is NOTHING:
        raise DataError(NOTHING_TAUGHT)
    if store.exists():
        remove_left_lock(folder)
        raise DataError(f"{folder} holds an extractor already; name another folder.")
    with store.writing(begin=True):
        store.write(replace(state, stamp=replace(state.stamp, parent=None)))


def _with_method(state: State, method: Method | None) -> State:
    if method is None:
        return replace(state, known=(), learned=None)
    known = sorted(state.known, key=lambda one: method.index[one.id])
    return replace(state, known=tuple(known), learned=method.checkpoint())


def _with_engine(setup: Setup) -> str:
    engine = setup.encoder.settings.get("engine")
    return f"'{setup.encoder.name}'" + (f" (engine {engine})" if engine else "")


def replayed(method: Method, known: Sequence[TaughtRelation], *, progress: Progress | None = None) -> Method:
    """Replay all teachings of these relations in order, and return the method."""
    teachings = sorted({one.since for one in known} | {lesson.teaching for one in known for lesson in one.lessons})
    for done, teaching in enumerate(teachings):
        if (task := _task(known, teaching, method.n_tasks)) is not None:
            method.learn(task)
        if progress:
            progress(done + 1, len(teachings))
    return method


def _task(known: Sequence[TaughtRelation], teaching: int, index: int) -> Task | None:
    """The relations and examples of one teaching as a task, in the order of teaching."""
    taught = (lesson for one in known for lesson in one.lessons if lesson.teaching == teaching)
    lessons = sorted(taught, key=lambda lesson: lesson.number)
    named = {lesson.example.relation for lesson in lessons}
    relations = tuple(one.relation for one in known if one.since == teaching or one.id in named)
    return Task(index, relations, tuple(one.example for one in lessons)) if relations else None


def _merged(old: Checkpoint, new: Checkpoint, order: Sequence[str]) -> Checkpoint:
    """Combine two checkpoints: the relations of `order`, from `new` if relearned there, else from `old`."""
    texts = {one.id: one for one in (*old.relations, *new.relations)}
    fresh = {one.id for one in new.relations}
    source = {one: new if one in fresh else old for one in order}
    rows = {
        name: {one: found.rows[name][one] for one, found in source.items() if one in found.rows.get(name, {})}
        for name in {**old.rows, **new.rows}
    }
    kept = tuple(one for one in old.kept if source.get(one.relation or "") is old) + new.kept
    return replace(old, relations=tuple(texts[one] for one in order), kept=kept, rows=rows)
