"""What frozen layers say about a sentence, computed once and kept: in memory, or in a file that processes share.

Sentences are found by a digest of their piece ids, in a store of its own for each fingerprint of weights and settings,
so nothing that is found can be out of date. When the bound is reached, new sentences are computed but no longer kept;
what is kept stays.

On disk a store is a file of records, one after another: key, size, checksum, states. Writers take a lock; readers need
none. What a crash leaves behind (the beginning of a record) is cut off by the next writer, and each sentence is
compared with its checksum before a process first uses it.
"""

from __future__ import annotations

import mmap
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from erda.errors import SettingsError

if TYPE_CHECKING:
    from erda.encoders.tokens import Pieces

GIBIBYTE = 1 << 30
HEADER = struct.Struct("<16sQI")  # key, number of bytes of the states, their crc32
SEEN_ONCE = 1_000_000


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
        self._vectors: dict[str, dict[bytes, np.ndarray]] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> FrozenCache:
        return self  # a copied encoder shares what is kept

    def states(self, fingerprint: str, width: int) -> FrozenStates:
        """The store of one fingerprint (weights and settings), opened or begun."""
        key = (fingerprint, width)
        with self.lock:
            if key not in self._stores:
                name = f"{fingerprint[:32]}-{width}-{str(self.dtype).removeprefix('torch.')}.states"
                store = FrozenStates(self) if self.folder is None else _FileStates(self, self.folder / name, width)
                self._stores[key] = store
            return self._stores[key]

    def vectors(self, encoder: str) -> dict[bytes, np.ndarray]:
        """Vectors of an ONNX encoder by sentence, in memory."""
        return self._vectors.setdefault(encoder, {})

    def used_bytes(self) -> int:
        """How much is kept, over all stores."""
        if self.folder is not None:
            return sum(file.stat().st_size for file in self.folder.glob("*.states"))
        return sum(store.n_bytes for store in self._stores.values())


class FrozenStates:
    """The states of one set of frozen weights, [n_rows, width] of each sentence; here in memory.

    Threads may share it: who looks or adds holds the cache's lock, and states that were handed out never change.
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
        """The states of each sentence, on the CPU: those that are kept; `make` gives the rest, which is then kept."""
        keys = [pieces.key for pieces in batch]
        kept = self.find(keys)
        missing = [i for i, states in enumerate(kept) if states is None]
        if missing:
            made = make([batch[i] for i in missing])
            made = list(torch.cat(made).cpu().split([len(states) for states in made]))  # from a GPU in one go
            self.add([keys[i] for i in missing], made, passing=passing)
            for i, states in zip(missing, made, strict=True):
                kept[i] = states.to(self.cache.dtype)
        return [states for states in kept if states is not None]

    def find(self, keys: Sequence[bytes]) -> list[Tensor | None]:
        """The states of those sentences that are kept."""
        with self.cache.lock:
            return [self._kept.get(key) for key in keys]

    def add(self, keys: Sequence[bytes], states: Sequence[Tensor], *, passing: bool = False) -> None:
        """Keep sentences, as far as there is room.

        Of `passing` sentences (training makes many that never come back) only those are kept that came before.
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
        """Keep what there is room for."""
        free = self.cache.max_bytes - self.cache.used_bytes()
        for key, part in states.items():
            size = part.numel() * self.cache.dtype.itemsize
            if size <= free and key not in self._kept:
                self._kept[key] = part.to(self.cache.dtype, copy=True)
                self.n_bytes += size
                free -= size


class _FileStates(FrozenStates):
    """States in a memory-mapped file."""

    def __init__(self, cache: FrozenCache, path: Path, width: int) -> None:
        super().__init__(cache)
        self._path = path
        self._width = width
        self._broken = False
        self._inode = 0  # of the file, which tells when somebody removed it
        self._forget()

    def __len__(self) -> int:
        return len(self._records)

    def _forget(self) -> None:
        self._numbers = torch.empty(0, dtype=self.cache.dtype)  # the whole file, headers among it
        self._end = 0  # of the last whole record
        self._records: dict[bytes, tuple[int, int, int]] = {}  # first number, the one after the last, checksum
        self._checked: set[bytes] = set()

    def find(self, keys: Sequence[bytes]) -> list[Tensor | None]:
        """As in memory; a miss first looks at what other processes have added."""
        with self.cache.lock:
            if any(key not in self._records for key in keys):
                self._refresh()
            return [self._states(key) for key in keys]

    def _states(self, key: bytes) -> Tensor | None:
        """The states of a sentence, if they are what was written."""
        if key not in self._records:
            return None
        start, stop, checksum = self._records[key]
        states = self._numbers[start:stop].view(-1, self._width)
        if key not in self._checked:
            if zlib.crc32(states.numpy().data) != checksum:
                del self._records[key]
                return None
            self._checked.add(key)
        return states

    def _refresh(self) -> None:
        """Read the records that were added since the last time."""
        try:
            with self._path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self._inode or about.st_size < self._end:
                    self._forget()
                    self._inode = about.st_ino
                if about.st_size < self._end + HEADER.size:
                    return
                mapped = mmap.mmap(file.fileno(), about.st_size, access=mmap.ACCESS_COPY)
        except FileNotFoundError:
            return self._forget()
        except OSError as error:
            return self._give_up(error)
        itemsize = self.cache.dtype.itemsize
        self._numbers = torch.frombuffer(mapped, dtype=self.cache.dtype, count=len(mapped) // itemsize)
        while (start := self._end + HEADER.size) <= len(mapped):
            key, size, checksum = HEADER.unpack_from(mapped, self._end)
            if size == 0 or size % (self._width * itemsize) or start + size > len(mapped):
                break  # by a crash, or another process is just writing it
            self._records[key] = (start // itemsize, (start + size) // itemsize, checksum)
            self._end = start + size

    def _store(self, states: dict[bytes, Tensor]) -> None:
        from filelock import FileLock

        if self._broken:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._path.with_name("frozen.lock")):
                self._refresh()
                free, parts = self.cache.max_bytes - self.cache.used_bytes(), list[bytes]()
                for key, part in states.items():
                    content = part.to(self.cache.dtype).contiguous().numpy().tobytes()
                    if key not in self._records and HEADER.size + len(content) <= free:
                        parts += [HEADER.pack(key, len(content), zlib.crc32(content)), content]
                        free -= HEADER.size + len(content)
                if parts:
                    _write_at(self._path, self._end, b"".join(parts))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._broken = True
        warnings.warn(
            f"The cache of frozen layers in {self._path} keeps no more sentences ({error}); "
            "the run goes on and computes them each time.",
            stacklevel=2,
        )


def _write_at(path: Path, offset: int, data: bytes) -> None:
    """Write at an offset and cut off whatever a crash left beyond it; what was there before `offset` stays."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(data)
