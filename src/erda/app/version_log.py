"""The versions of one extractor: read from disk, cached in memory, and extended by the next version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TypeVar

import numpy as np

from erda.app.answers import Progress
from erda.app.derived import DerivedArrays
from erda.app.setup import Asked, Builder, without_engine
from erda.app.state import NOTHING, Setup, Stamp, State, now
from erda.app.store import Store
from erda.app.teaching import relearned, replayed
from erda.app.version import NOTHING_TAUGHT, Version
from erda.errors import DataError, ErdaError, ModelError
from erda.methods.base import Method

T = TypeVar("T")
AT_HAND = 2  # versions cached beside the current one, so that undo is immediate


class VersionLog:
    """All versions of an extractor. `current` answers questions and is never modified, only replaced.

    Threads can share a log. Among several processes, one writes at a time.
    """

    def __init__(self, folder: Path, asked: Asked) -> None:
        self.store, self.builder = Store(folder), Builder(asked)
        self.lock = RLock()
        self.at_hand: dict[int, Version] = {}
        self.current = Version(State(Stamp(0, None, now(), "begun", NOTHING)), self._build)

    @contextmanager
    def writing(self, *, begin: bool = False, take_over: bool = False) -> Iterator[State]:
        """Yield the current state on disk while no other thread or process writes.

        Only `begin` creates a new store. Only `take_over` changes a store that erda 0.1.0 wrote.
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
                    if not take_over:
                        self.store.refuse_old(self.store.head())
                    yield self.current.state
            except BaseException:
                if is_new:
                    self.current = blank
                    self.at_hand.clear()
                raise

    def edit(self, change: Callable[[Store], T]) -> T:
        """Change the files of the store (`store_edits.py`), then load the version that is current."""
        with self.lock:
            if self.current.state.stamp.setup is NOTHING and not self.store.exists():
                raise DataError(NOTHING_TAUGHT)
            self.refresh()
            done = change(self.store)
            self.refresh()
            return done

    def learn(self, after: State, progress: Progress | None = None) -> Version:
        """Train the method on `after.known`, write the result as the next version, and make it current.

        If only counterexamples, unrelated sentences, thresholds or declarations change, the method stays as it is.
        """
        before, known = self.current.state, after.known
        if [one.learned_from for one in known] == [one.learned_from for one in before.known]:
            return self._write(replace(after, learned=before.learned), self.current.built)
        setup, method = before.stamp.setup, None
        if known:
            method = relearned(
                self.current.method if before.known else self.builder.blank(setup),
                before.known,
                known,
                teaching=before.stamp.n_teachings,
                blank=lambda: self.builder.blank(setup),
                progress=progress,
            )
        return self._write(_with_method(after, method), method)

    def _write(self, after: State, method: Method | None) -> Version:
        before = self.current.state
        if after.thresholds:
            after = replace(after, thresholds=after.thresholds.only([one.id for one in after.known]))
        stamp = replace(after.stamp, parent=before.stamp.number, time=now())
        self.current = self.keep(self.store.write(replace(after, stamp=stamp), near=before), method)
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
        for _ in range(2):
            head = self.store.head()
            try:
                return self.at(head.current)
            except ErdaError:  # another process pruned it during the read, unless it is still current
                if self.store.head() == head:
                    raise
        return self.at(self.store.head().current)

    def at(self, number: int) -> Version:
        """Return a version, from memory if its identity matches: a backup can replace a store by an older copy."""
        at_hand = self.at_hand.pop(number, None)
        if at_hand and at_hand.state.stamp.identity == self.store.identity(number):
            self.at_hand[number] = at_hand  # the last to be evicted
            return at_hand
        return self.keep(self.store.read(number, near=self.current.state))

    def keep(self, state: State, method: Method | None = None) -> Version:
        """Cache a version in memory."""
        version = Version(state, self._build, method, DerivedArrays(self.store, state.stamp.identity))
        self.at_hand[version.number] = version
        for number in [one for one in self.at_hand if one != self.current.number][:-AT_HAND]:
            del self.at_hand[number]
        return version

    def _build(self, state: State) -> Method:
        method = self.builder.blank(state.stamp.setup)
        if state.learned is not None:
            method.restore(state.learned)
        return method

    def _refuse_other(self, stored: Setup) -> None:
        """Reject a requested method or encoder that differs from those of the store."""
        if self.builder.asked.is_met_by(stored):
            return
        setup = self.builder.setup(stored)
        if setup != stored:
            raise ModelError(
                f"{self.store.folder} was taught to method '{stored.method}' over encoder {_with_engine(stored)}, not "
                f"to '{setup.method}' over {_with_engine(setup)} with these settings. Leave them out, or open it with "
                "relearn=True (erda teach --relearn) to teach all its examples again."
            )

    def relearn(self, progress: Progress | None) -> None:
        """Teach all examples to the requested setup if it, or its background, differs from that of the store."""
        self.current = self._newest()
        stored, is_old = self.current.state.stamp.setup, self.current.state.is_old
        setup = self.builder.setup(without_engine(stored) if is_old else stored)
        learned = self.current.state.learned
        blank = self.builder.blank(setup)
        new = blank.taken_over()
        kept = learned.shared if learned else new
        same = all(name in kept and np.array_equal(kept[name], one) for name, one in new.items())
        if not is_old and setup == stored and same:
            return
        with self.writing(take_over=True) as before:
            method = replayed(blank, before.known, progress=progress) if before.known else None
            what = f"taught everything to {setup.method} over {setup.encoder.name}"
            after = replace(before, stamp=replace(before.stamp, what=what, setup=setup), is_old=False)
            self._write(_with_method(after, method), method)


def _with_method(state: State, method: Method | None) -> State:
    if method is None:
        return replace(state, known=(), learned=None)
    known = sorted(state.known, key=lambda one: method.index[one.id])
    return replace(state, known=tuple(known), learned=method.checkpoint())


def _with_engine(setup: Setup) -> str:
    engine = setup.encoder.settings.get("engine")
    return f"'{setup.encoder.name}'" + (f" (engine {engine})" if engine else "")
