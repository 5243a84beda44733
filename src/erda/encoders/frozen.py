"""What frozen layers say about a sentence, computed once and kept: in memory, or in a file that processes share.

Sentences are found by a digest of their piece ids, in a store of its own for each fingerprint of weights and settings,
so nothing that is found can be out of date. A store is one long matrix of states; row 0 is zero and pads batches.
When the bound is reached, new sentences are computed but no longer kept; what is kept stays.

On disk a store is `states.bin` (the matrix) and `index.bin` (a record per sentence, written after its states). Writers
take a lock on the folder; readers need none. What a crash leaves behind (a torn record, states without a record) is
cut off by the next writer, and each sentence is compared with its checksum before a process first uses it.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

import numpy as np
import torch
from torch import Tensor

from erda.errors import SettingsError

GIBIBYTE = 1 << 30
RECORD = struct.Struct("<16sQII")  # key, first row, number of rows, crc32 of the states
SEEN_ONCE = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """Where sentences are in `rows` [n_rows, width]: `first` [n] is the first row of each, -1 where it is not kept."""

    first: np.ndarray
    rows: Tensor


class FrozenStates(ABC):
    """The states of one set of frozen weights: `rows` is everything kept, [n_rows, width].

    Threads may share it: who looks or adds holds the cache's lock, and rows that were handed out never change.
    """

    def __init__(self, cache: FrozenCache, width: int) -> None:
        self.cache = cache
        self.width = width
        self.rows = torch.zeros(1, width, dtype=cache.dtype)
        self._first: dict[bytes, int] = {}
        self._seen: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._first)

    def find(self, keys: Sequence[bytes]) -> KeptRows:
        """Which sentences are kept, and where."""
        with self.cache.lock:
            first = self._first
            found = np.fromiter((first.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))
            return KeptRows(found, self.rows)

    def add(self, keys: Sequence[bytes], counts: Sequence[int], states: Tensor, *, passing: bool = False) -> None:
        """Keep sentences, as far as there is room: `states` [sum of counts, width] in the order of `keys`.

        Of `passing` sentences (training makes many that never come back) only those are kept that came before.
        """
        ends = np.cumsum(counts)
        chosen: dict[bytes, Tensor] = {}
        with self.cache.lock:
            for key, count, end in zip(keys, counts, ends, strict=True):
                if key in self._first:
                    continue
                if passing and key not in self._seen:
                    if len(self._seen) >= SEEN_ONCE:
                        self._seen.clear()
                    self._seen.add(key)
                    continue
                chosen[key] = states[int(end) - count : int(end)]
            if chosen:
                self._store(chosen)

    @abstractmethod
    def _store(self, states: dict[bytes, Tensor]) -> None:
        """Keep what there is room for."""

    def _row_bytes(self) -> int:
        return self.width * self.cache.dtype.itemsize


class FrozenCache:
    """A bounded home for the states of frozen layers, shared by everything that is handed the same object or folder.

    Without `folder` it lives in memory. `half` keeps float16: half the room, vectors that differ in the third digit.
    """

    def __init__(self, folder: Path | None = None, *, max_bytes: int = 4 * GIBIBYTE, half: bool = False) -> None:
        if max_bytes < 0:
            raise SettingsError(f"the cache of frozen layers cannot hold {max_bytes} bytes; 0 turns it off.")
        self.folder = Path(folder) if folder is not None else None
        self.max_bytes = max_bytes
        self.dtype = torch.float16 if half else torch.float32
        self.lock = RLock()
        self._stores: dict[tuple[str, int], FrozenStates] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> FrozenCache:
        return self  # a copied encoder shares what is kept

    def states(self, fingerprint: str, width: int) -> FrozenStates:
        """The store of one fingerprint (weights and settings), opened or begun."""
        key = (fingerprint, width)
        with self.lock:
            if key not in self._stores:
                name = f"{fingerprint[:32]}-{width}-{str(self.dtype).removeprefix('torch.')}"
                place = self.folder and self.folder / name
                self._stores[key] = _FileStates(self, width, place) if place else _MemoryStates(self, width)
            return self._stores[key]

    def used_bytes(self) -> int:
        """How much is kept, over all stores."""
        if self.folder is not None:
            return sum(file.stat().st_size for file in self.folder.glob("*/states.bin"))
        return sum(store.used_bytes() for store in self._stores.values() if isinstance(store, _MemoryStates))


class _MemoryStates(FrozenStates):
    """States in one array as large as the bound (or the machine); its pages are taken only when they are written."""

    def __init__(self, cache: FrozenCache, width: int) -> None:
        super().__init__(cache, width)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        room = min(cache.max_bytes, memory) // self._row_bytes()
        self._n_rows = 1
        while room > 1:
            with suppress(RuntimeError):  # more than the system grants beside what others hold: then half of it
                self.rows = torch.empty(room, width, dtype=cache.dtype)
                self.rows[0] = 0
                break
            room //= 2

    def used_bytes(self) -> int:
        return self._n_rows * self._row_bytes()

    def _store(self, states: dict[bytes, Tensor]) -> None:
        free = (self.cache.max_bytes - self.cache.used_bytes()) // self._row_bytes()
        for key, part in states.items():
            count = part.shape[0]
            if count <= free and self._n_rows + count <= self.rows.shape[0]:
                self.rows[self._n_rows : self._n_rows + count] = part
                self._first[key] = self._n_rows
                self._n_rows += count
                free -= count


class _FileStates(FrozenStates):
    """States in a memory-mapped file."""

    def __init__(self, cache: FrozenCache, width: int, folder: Path) -> None:
        super().__init__(cache, width)
        self._states = folder / "states.bin"
        self._index = folder / "index.bin"
        self._n_read = 0  # bytes of the index that were read
        self._inode = 0  # of the index, which tells when somebody replaced it
        self._unchecked: dict[bytes, tuple[int, int, int]] = {}
        self._broken = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._refresh()
        except OSError as error:
            self._give_up(error)

    def find(self, keys: Sequence[bytes]) -> KeptRows:
        """As in memory; a miss first looks at what other processes have added."""
        with self.cache.lock:
            if not self._broken and any(key not in self._first and key not in self._unchecked for key in keys):
                self._refresh()
            for key in keys if self._unchecked else ():
                if key in self._unchecked:
                    self._check(key)
            return super().find(keys)

    def _check(self, key: bytes) -> None:
        """Take a sentence into use if its states are what was written."""
        first, count, checksum = self._unchecked.pop(key)
        if zlib.crc32(self.rows[first : first + count].numpy().data) == checksum:
            self._first[key] = first

    def _refresh(self) -> int:
        """Read records that were added since the last time; the number of rows that records account for."""
        try:
            with self._index.open("rb") as file:
                about = os.fstat(file.fileno())
                if (self._n_read and about.st_ino != self._inode) or about.st_size < self._n_read:
                    self._forget()
                self._inode = about.st_ino
                file.seek(self._n_read)
                fresh = file.read()
            on_disk = self._states.stat().st_size // self._row_bytes()
        except FileNotFoundError:
            self._forget()
            return self.rows.shape[0]
        if on_disk < self.rows.shape[0] > 1:
            self._forget()
            return self._refresh()
        whole = len(fresh) - len(fresh) % RECORD.size
        end = self.rows.shape[0]
        for key, first, count, checksum in RECORD.iter_unpack(fresh[:whole]):
            if first > 0 and count > 0 and first + count <= on_disk:
                end = max(end, first + count)
                if key not in self._first:
                    self._unchecked[key] = (first, count, checksum)
        self._n_read += whole
        self._map(end)
        return end

    def _forget(self) -> None:
        """Begin again: somebody emptied the folder."""
        self.rows = torch.zeros(1, self.width, dtype=self.cache.dtype)
        self._n_read = 0
        self._first.clear()
        self._unchecked.clear()

    def _map(self, n_rows: int) -> None:
        if n_rows > max(1, self.rows.shape[0]):
            dtype = np.float16 if self.cache.dtype == torch.float16 else np.float32
            shape = (n_rows, self.width)
            self.rows = torch.from_numpy(np.memmap(self._states, dtype=dtype, mode="c", shape=shape))

    def _store(self, states: dict[bytes, Tensor]) -> None:
        if self._broken:
            return
        try:
            with self._lock():
                self._append(states)
        except OSError as error:
            self._give_up(error)

    def _append(self, states: dict[bytes, Tensor]) -> None:
        end = self._refresh()
        free = (self.cache.max_bytes - self.cache.used_bytes()) // self._row_bytes()
        parts = [np.zeros((1, self.width), self.rows.numpy().dtype)] if end == 1 else []
        free -= len(parts)
        records, placed, n_rows = [], [], end
        for key, part in states.items():
            count = part.shape[0]
            if count > free or key in self._first or key in self._unchecked:
                continue
            array = part.to(self.cache.dtype).contiguous().numpy()
            parts.append(array)
            records.append(RECORD.pack(key, n_rows, count, zlib.crc32(array.data)))
            placed.append((key, n_rows))
            n_rows += count
            free -= count
        if not placed:
            return
        start = end - 1 if end == 1 else end
        _write_at(self._states, start * self._row_bytes(), b"".join(part.tobytes() for part in parts))
        _write_at(self._index, self._n_read, b"".join(records))
        self._n_read += len(records) * RECORD.size
        self._map(n_rows)
        self._first.update(placed)

    def _lock(self) -> AbstractContextManager[object]:
        from filelock import FileLock

        return FileLock(self._states.parent.parent / "frozen.lock")

    def _give_up(self, error: OSError) -> None:
        self._broken = True
        warnings.warn(
            f"The cache of frozen layers in {self._states.parent} keeps no more sentences ({error}); "
            "the run goes on and computes them each time.",
            stacklevel=2,
        )


def _write_at(path: Path, offset: int, data: bytes) -> None:
    """Write at an offset and cut off whatever a crash left beyond it; what was there before `offset` stays."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(data)


def gather(rows: Tensor, first: np.ndarray, counts: np.ndarray, length: int) -> Tensor:
    """A padded batch [n, length, width] whose sentence i is `rows[first[i] : first[i] + counts[i]]`."""
    steps = np.arange(length)
    index = np.where(steps < counts[:, None], first[:, None] + steps, 0)
    picked = rows.index_select(0, torch.from_numpy(index.reshape(-1)).to(rows.device))
    return picked.view(len(counts), length, rows.shape[1])
