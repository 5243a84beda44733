"""Sorted keys on disk and the row of each: found by reading a few pages, never by loading or mapping the file.

Keys are hashes, so they lie evenly between 0 and 2^64 and a key's place can be guessed: it is off by about half the
square root of their number. A window of four times that around the guess nearly always holds it; else it is doubled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import isqrt
from pathlib import Path

import numpy as np

from erda.errors import DataError
from erda.files import UNREADABLE, whole_file

_SPREAD = 2.0**64
_MIN_WINDOW = 256
_KINDS = (np.dtype(np.uint64), np.dtype(np.int64))


class Lookup:
    """Two arrays of the same length on disk (`.npy`): sorted uint64 keys, int64 rows."""

    def __init__(self, keys: Path, rows: Path) -> None:
        self._paths = keys, rows
        self._n_keys, self._keys_at = _header(keys, _KINDS[0])
        n_rows, self._rows_at = _header(rows, _KINDS[1])
        if n_rows != self._n_keys:
            raise DataError(f"{rows}: holds {n_rows:,} numbers beside {self._n_keys:,} keys; the corpus is damaged.")

    def find(self, keys: np.ndarray) -> list[np.ndarray]:
        """The rows stored under each key, in the order of the file."""
        with self._paths[0].open("rb") as key_file, self._paths[1].open("rb") as row_file:
            found = []
            for key in keys:
                left, right = self._range(key_file.fileno(), key)
                raw = os.pread(row_file.fileno(), 8 * (right - left), self._rows_at + 8 * left)
                found.append(np.frombuffer(raw, np.int64))
            return found

    def _range(self, file: int, key: np.uint64) -> tuple[int, int]:
        """Where a key stands: from the first place to the one after the last."""
        guess = int(float(key) / _SPREAD * self._n_keys)
        window = max(_MIN_WINDOW, 2 * isqrt(self._n_keys))
        while True:
            start, end = max(0, guess - window), min(self._n_keys, guess + window)
            block = np.frombuffer(os.pread(file, 8 * (end - start), self._keys_at + 8 * start), np.uint64)
            after_start = start == 0 or (len(block) > 0 and block[0] < key)
            before_end = end == self._n_keys or (len(block) > 0 and block[-1] > key)
            if after_start and before_end:
                left, right = np.searchsorted(block, key, "left"), np.searchsorted(block, key, "right")
                return start + int(left), start + int(right)
            window *= 2


def write_lookup(keys: Path, rows: Path, n_keys: int, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write `n_keys` sorted keys and their rows as they come; never mapped, so that a full disk is a plain fault."""
    with (
        whole_file(keys) as key_path,
        whole_file(rows) as row_path,
        key_path.open("wb") as key_file,
        row_path.open("wb") as row_file,
    ):
        files = (key_file, row_file)
        for file, kind in zip(files, _KINDS, strict=True):
            header = {"descr": kind.str, "fortran_order": False, "shape": (n_keys,)}
            np.lib.format.write_array_header_1_0(file, header)
        for batch in batches:
            for file, kind, values in zip(files, _KINDS, batch, strict=True):
                file.write(values.astype(kind, copy=False).tobytes())


def _header(path: Path, kind: np.dtype) -> tuple[int, int]:
    """Length of a stored array and where its values begin."""
    try:
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, found = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read ({error}); the corpus is damaged.") from None
    if found != kind or len(shape) != 1 or path.stat().st_size != start + 8 * shape[0]:
        raise DataError(f"{path}: not {kind.name} numbers as the corpus needs them; it is damaged.")
    return shape[0], start
