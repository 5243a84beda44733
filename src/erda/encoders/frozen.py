"""States of frozen layers, computed once per sentence and cached: in memory, or in a SQLite file.

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

from erda.errors import SettingsError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from erda.encoders.tokens import Pieces

GIBIBYTE = 1 << 30
FILE = "frozen.sqlite"
SEEN_ONCE = 1_000_000
BUSY_SECONDS = 60
SCHEMA = """
pragma page_size = 65536;
pragma journal_mode = wal;
pragma synchronous = normal;
create table if not exists states (store text, key blob, checksum integer, content blob, primary key (store, key));
create table if not exists sizes (store text primary key, n_bytes integer);
"""
GROW = "insert into sizes values (?, ?) on conflict (store) do update set n_bytes = n_bytes + excluded.n_bytes"
T = TypeVar("T")


class FrozenCache:
    """A bounded cache of the states of frozen layers, shared by all encoders with the same object or folder.

    Without `folder` it lives in memory. `half` stores float16: half the size, vectors differ in the third digit.
    """

    def __init__(self, folder: Path | None = None, *, max_bytes: int = 4 * GIBIBYTE, half: bool = False) -> None:
        if max_bytes < 0:
            raise SettingsError(f"cache of frozen layers: expected a size of 0 bytes (off) or more, got {max_bytes}.")
        self.folder = Path(folder) if folder is not None else None
        self.max_bytes = max_bytes
        self.half = half
        self.lock = RLock()
        self._stores: dict[tuple[str, int], FrozenStates] = {}
        self._vectors: dict[str, dict[bytes, np.ndarray]] = {}
        self._database = _Database(self.folder / FILE) if self.folder is not None else None

    def __deepcopy__(self, memo: dict[int, object]) -> FrozenCache:
        return self  # copies of an encoder share their cache

    @property
    def dtype(self) -> torch.dtype:
        """Type of the stored states. PyTorch is loaded lazily: an ONNX encoder caches only `vectors`."""
        import torch

        return torch.float16 if self.half else torch.float32

    def states(self, fingerprint: str, width: int) -> FrozenStates:
        """Open or create the store of one fingerprint (weights and settings)."""
        key = (fingerprint, width)
        with self.lock:
            if key not in self._stores:
                name = f"{fingerprint} {width} {self.dtype}"
                self._stores[key] = (
                    _SqliteStates(self, self._database, name, width) if self._database else FrozenStates(self)
                )
            return self._stores[key]

    def vectors(self, encoder: str) -> dict[bytes, np.ndarray]:
        """In-memory vector cache of an ONNX encoder, by sentence."""
        return self._vectors.setdefault(encoder, {})

    def used_bytes(self) -> int:
        """Size of all cached states."""
        if self._database is not None:
            return self._database.run("read", _used_bytes, 0)
        return sum(store.n_bytes for store in self._stores.values())


class FrozenStates:
    """States of one set of frozen weights, [n_rows, width] per sentence, in memory.

    Thread-safe: lookups and additions hold the cache's lock, and returned states never change.
    """

    def __init__(self, cache: FrozenCache) -> None:
        self.cache = cache
        self.n_bytes = 0
        self._kept: dict[bytes, Tensor] = {}
        self._seen: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def of(
        self, batch: Sequence[Pieces], make: Callable[[list[Pieces]], list[Tensor]], *, passing: bool = False
    ) -> list[Tensor]:
        """States of each sentence, on the CPU; `make` computes the missing ones, which are then cached."""
        keys = [pieces.key for pieces in batch]
        kept = self.find(keys)
        missing = [i for i, states in enumerate(kept) if states is None]
        if missing:
            import torch

            made = make([batch[i] for i in missing])
            made = list(torch.cat(made).cpu().split([len(states) for states in made]))  # one copy from a GPU
            self.add([keys[i] for i in missing], made, passing=passing)
            for i, states in zip(missing, made, strict=True):
                kept[i] = states.to(self.cache.dtype)
        return [states for states in kept if states is not None]

    def find(self, keys: Sequence[bytes]) -> list[Tensor | None]:
        """Cached states, None for a miss."""
        with self.cache.lock:
            return [self._kept.get(key) for key in keys]

    def add(self, keys: Sequence[bytes], states: Sequence[Tensor], *, passing: bool = False) -> None:
        """Cache sentences while there is room.

        `passing` sentences are cached at their second occurrence: most sentences made during training occur once.
        """
        chosen: dict[bytes, Tensor] = {}
        with self.cache.lock:
            for key, part in zip(keys, states, strict=True):
                if passing and key not in self._seen:
                    if len(self._seen) >= SEEN_ONCE:
                        self._seen.clear()
                    self._seen.add(key)
                else:
                    chosen[key] = part
            if chosen:
                self._store(chosen)

    def _store(self, states: dict[bytes, Tensor]) -> None:
        free = self.cache.max_bytes - self.cache.used_bytes()
        for key, part in states.items():
            size = part.numel() * self.cache.dtype.itemsize
            if size <= free and key not in self._kept:
                self._kept[key] = part.to(self.cache.dtype, copy=True)
                self.n_bytes += size
                free -= size


class _SqliteStates(FrozenStates):
    """States in a SQLite file that several processes may share."""

    def __init__(self, cache: FrozenCache, database: _Database, name: str, width: int) -> None:
        super().__init__(cache)
        self._database, self._name, self._width = database, name, width

    def __len__(self) -> int:
        count = "select count(*) from states where store = ?"
        with self.cache.lock:
            return self._database.run("read", lambda file: int(file.execute(count, [self._name]).fetchone()[0]), 0)

    def find(self, keys: Sequence[bytes]) -> list[Tensor | None]:
        """Cached states, None for a miss and for a wrong checksum."""
        with self.cache.lock:
            return self._database.run("read", lambda file: [self._find(file, key) for key in keys], [None] * len(keys))

    def _find(self, file: sqlite3.Connection, key: bytes) -> Tensor | None:
        query = "select checksum, content from states where store = ? and key = ?"
        row = file.execute(query, [self._name, key]).fetchone()
        if row is None or zlib.crc32(row[1]) != row[0]:
            return None
        import torch

        return torch.frombuffer(bytearray(row[1]), dtype=self.cache.dtype).view(-1, self._width)

    def _store(self, states: dict[bytes, Tensor]) -> None:
        """Add entries while there is room, and replace damaged ones, in one transaction."""

        def add(file: sqlite3.Connection) -> None:
            file.execute("begin immediate")
            n_added = 0
            free = self.cache.max_bytes - _used_bytes(file)
            for key, part in states.items():
                content = part.to(self.cache.dtype).contiguous().numpy().tobytes()
                if len(content) <= free - n_added and self._find(file, key) is None:
                    row = [self._name, key, zlib.crc32(content), content]
                    file.execute("insert or replace into states values (?, ?, ?, ?)", row)
                    n_added += len(content)
            file.execute(GROW, [self._name, n_added])
            file.execute("commit")

        self._database.run("write", add, None)


class _Database:
    """The SQLite file. An I/O error becomes a warning, and the run continues without the cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: sqlite3.Connection | None = None
        self._process = 0
        self._failed: set[str] = set()

    def run(self, kind: Literal["read", "write"], work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Return the result of `work`, or `default` after an error; then skip all further work of that kind."""
        if kind in self._failed:
            return default
        try:
            return work(self._connected())
        except (sqlite3.Error, OSError) as fault:
            self._failed.add(kind)
            if self._file is not None and self._file.in_transaction:
                self._file.rollback()
            warnings.warn(
                f"Cannot {kind} the cache of frozen layers {self._path} ({fault}). The run continues without it. "
                "If the file is damaged, delete it.",
                stacklevel=2,
            )
            return default

    def _connected(self) -> sqlite3.Connection:
        if self._file is None or self._process != os.getpid():  # a connection must not cross a fork
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            file.executescript(SCHEMA)
            self._file, self._process = file, os.getpid()
        return self._file


def _used_bytes(file: sqlite3.Connection) -> int:
    return int(file.execute("select total(n_bytes) from sizes").fetchone()[0])
