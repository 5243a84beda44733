"""Rows by entity pair: sorted 64-bit keys and the row of each, in two memory-mapped files.

A binary search touches a few pages of the files, so memory does not grow with the corpus.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from erda.errors import DataError
from erda.files import UNREADABLE

LOOKUP_TYPES = (np.dtype(np.uint64), np.dtype(np.int64))


class PairLookup:
    """Rows by key, from two `.npy` files of the same length: sorted uint64 keys and int64 rows."""

    def __init__(self, keys: Path, rows: Path) -> None:
        self._keys, self._rows = _mapped(keys, LOOKUP_TYPES[0]), _mapped(rows, LOOKUP_TYPES[1])
        if len(self._keys) != len(self._rows):
            raise DataError(f"{rows}: {len(self._rows):,} rows for {len(self._keys):,} keys; the corpus is damaged.")

    def find(self, keys: np.ndarray) -> list[np.ndarray]:
        """Find the rows of each key, in the order of the file."""
        left, right = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        return [np.array(self._rows[start:end]) for start, end in zip(left, right, strict=True)]


def _mapped(path: Path, kind: np.dtype) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read ({error}); the corpus is damaged.") from None
    if array.dtype != kind or array.ndim != 1:
        raise DataError(f"{path}: expected an array of {kind.name}; the corpus is damaged.")
    return array
