"""The cache of vectors: states of frozen layers, computed once per sentence and kept in SQLite, in memory or in a file.

The key of a sentence is the fingerprint of everything that determines its states (weights, settings, versions) and a
digest of its piece ids, so entries never become stale. A full cache keeps its entries and adds no new ones.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from erda.encoders.tokens import Pieces

GIBIBYTE = 1 << 30
FILE = "frozen.sqlite"
SEEN_ONCE = 1_000_000
BUSY_SECONDS = 60
PAGE_SIZE, MOST_PAGES = 1 << 16, (1 << 32) - 2  # of SQLite
SCHEMA = f"""
pragma page_size = {PAGE_SIZE};
pragma journal_mode = wal;
pragma synchronous = normal;
create table if not exists states (store text, key blob, checksum integer, content blob, primary key (store, key));
"""
FIND = "select checksum, content from states where store = ? and key = ?"
T = TypeVar("T")


class FrozenCache:
    """A bounded cache of the states of frozen layers, shared by all encoders with the same object or folder.

    Without `folder` it lives in memory. An I/O error becomes a warning, and the run continues without the cache.
    """

    def __init__(self, folder: Path | None = None, *, max_bytes: int = 4 * GIBIBYTE) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self.max_bytes = max_bytes
        self._lock = RLock()
        self._stores: dict[tuple[str, int], FrozenStates] = {}
        self._file: sqlite3.Connection | None = None
        self._process = 0
        self._failed: set[str] = set()

    def __deepcopy__(self, memo: dict[int, object]) -> FrozenCache:
        return self  # copies of an encoder share their cache

    def states(self, fingerprint: str, width: int) -> FrozenStates:
        """Open or create the store of one fingerprint (weights and settings)."""
        return self._stores.setdefault((fingerprint, width), FrozenStates(self, f"{fingerprint} {width}", width))

    def run(self, kind: Literal["read", "write"], work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Return the result of `work`, or `default` after an error; then skip all further work of that kind."""
        with self._lock:
            if kind in self._failed:
                return default
            try:
                return work(self.connected())
            except (sqlite3.Error, OSError) as fault:
                self._failed.add(kind)
                if self._file is not None and self._file.in_transaction:
                    self._file.rollback()
                if getattr(fault, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
                    warnings.warn(
                        f"Cannot {kind} the cache of frozen layers {self.path} ({fault}). The run continues without "
                        "it. If the file is damaged, delete it.",
                        stacklevel=2,
                    )
                return default

    def connected(self) -> sqlite3.Connection:
        """The connection of this process; a connection must not cross a fork."""
        if self._file is None or self._process != os.getpid():
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            place = self.path or ":memory:"
            file = sqlite3.connect(place, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            file.executescript(SCHEMA)
            file.execute(f"pragma max_page_count = {min(self.max_bytes // PAGE_SIZE + 1, MOST_PAGES)}")
            self._file, self._process = file, os.getpid()
        return self._file


class FrozenStates:
    """States of one set of frozen weights, [n_rows, width] float32 per sentence. Thread-safe."""

    def __init__(self, cache: FrozenCache, name: str, width: int) -> None:
        self.cache, self._name, self._width = cache, name, width
        self._seen: set[bytes] = set()

    def __len__(self) -> int:
        count = "select count(*) from states where store = ?"
        return self.cache.run("read", lambda file: int(file.execute(count, [self._name]).fetchone()[0]), 0)

    def of(
        self, batch: Sequence[Pieces], make: Callable[[list[Pieces]], Sequence[np.ndarray]], *, passing: bool = False
    ) -> list[np.ndarray]:
        """States of each sentence; `make` computes the missing ones, which are then cached."""
        keys = [pieces.key for pieces in batch]
        kept = self.find(keys)
        if missing := [i for i, states in enumerate(kept) if states is None]:
            made = make([batch[i] for i in missing])
            self.add([keys[i] for i in missing], made, passing=passing)
            for i, states in zip(missing, made, strict=True):
                kept[i] = states
        return [states for states in kept if states is not None]

    def find(self, keys: Sequence[bytes]) -> list[np.ndarray | None]:
        """Cached states, None for a miss and for a wrong checksum."""
        return self.cache.run("read", lambda file: [self._find(file, key) for key in keys], [None] * len(keys))

    def _find(self, file: sqlite3.Connection, key: bytes) -> np.ndarray | None:
        row = file.execute(FIND, [self._name, key]).fetchone()
        if row is None or zlib.crc32(row[1]) != row[0]:
            return None
        return np.frombuffer(bytearray(row[1]), dtype=np.float32).reshape(-1, self._width)

    def add(self, keys: Sequence[bytes], states: Sequence[np.ndarray], *, passing: bool = False) -> None:
        """Cache sentences while there is room, and replace damaged ones, in one transaction.

        `passing` sentences are cached at their second occurrence: most sentences made during training occur once.
        """
        chosen = dict(zip(keys, states, strict=True))
        if passing:
            if len(self._seen) >= SEEN_ONCE:
                self._seen.clear()
            chosen = {key: part for key, part in chosen.items() if key in self._seen}
            self._seen.update(keys)
        if not chosen:
            return

        def write(file: sqlite3.Connection) -> None:
            file.execute("begin immediate")
            for key, part in chosen.items():
                content = part.tobytes()
                row = [self._name, key, zlib.crc32(content), content]
                file.execute("insert or replace into states values (?, ?, ?, ?)", row)
            file.execute("commit")

        self.cache.run("write", write, None)
