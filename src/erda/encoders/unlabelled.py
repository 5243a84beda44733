"""Statistics of unlabelled entity pairs: moments of their vectors, and a sample with types and positions.

With the vectors of general relation names, they represent everything that was never taught (`erda.methods.openness`).
`tools/build_unlabelled.py` writes the file beside the weights; it is valid only for those weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from erda.errors import ModelError
from erda.files import file_state, read_arrays, write_arrays

FILE = "unlabelled.npz"
AGAIN = "Reinstall erda, or rebuild it: python tools/build_unlabelled.py."
STEPS = 127  # of an 8-bit number
MOMENTS = ("mean", "axes", "variances", "smoothing", "rivals")
NAMES = (*MOMENTS, "vectors", "scales", "types", "starts", "type_names", "fingerprint")


@dataclass(frozen=True, slots=True, eq=False)
class Unlabelled:
    """Moments of the vectors of unlabelled pairs, and a sample of the pairs.

    Type 0 is unknown; the others are `type_names`. Row s of `smoothing` is the distribution of types of a mention that
    was tagged s once: taggers err, and types overlap.
    """

    mean: np.ndarray  # [dim]
    axes: np.ndarray  # [dim, dim], eigenvectors of the covariance in columns
    variances: np.ndarray  # [dim], its eigenvalues
    vectors: np.ndarray  # [n, dim], of length 1
    types: np.ndarray  # [n, 2], of head and tail
    starts: np.ndarray  # [n, 2], first tokens of head and tail
    type_names: tuple[str, ...]
    smoothing: np.ndarray  # [1 + n_types, 1 + n_types]
    rivals: np.ndarray  # [n_rivals, dim], vectors of general relation names ("hired", "died in", ...)


@dataclass(frozen=True, slots=True)
class UnlabelledFile:
    """Folder of the file and fingerprint of its weights; with a `remedy` it must exist, or answers would differ."""

    folder: Path
    fingerprint: str
    remedy: str = ""

    def read(self) -> Unlabelled | None:
        """Read the pairs; None if there are none for these weights."""
        path = self.folder / FILE
        state = file_state(path)
        found = _read(path, self.fingerprint, state) if state else None
        if found is None and self.remedy:
            raise ModelError(f"{path}: is missing or belongs to other weights. {self.remedy}")
        return found


@lru_cache(maxsize=1)  # every teaching fits with them
def _read(path: Path, fingerprint: str, state: tuple[int, ...]) -> Unlabelled | None:
    """Read the file; `state` changes with its content."""
    arrays = read_arrays(path, error=ModelError, remedy=AGAIN)
    if arrays.keys() != set(NAMES):
        raise ModelError(f"{path}: has no valid statistics of unlabelled pairs. {AGAIN}")
    if str(arrays["fingerprint"]) != fingerprint:
        return None
    single = {name: arrays[name].astype(np.float32) for name in MOMENTS}
    return Unlabelled(
        **single,
        vectors=arrays["vectors"].astype(np.float32) * arrays["scales"][:, None],
        types=arrays["types"].astype(np.int64),
        starts=arrays["starts"].astype(np.int64),
        type_names=tuple(map(str, arrays["type_names"])),
    )


def save_unlabelled(folder: Path, pairs: Unlabelled, fingerprint: str) -> Path:
    """Write pairs with 8 bits per number of the sample and 16 of the axes."""
    scales = np.abs(pairs.vectors).max(axis=1) / STEPS
    arrays = {
        "mean": pairs.mean.astype(np.float32),
        "axes": pairs.axes.astype(np.float16),
        "variances": pairs.variances.astype(np.float32),
        "vectors": np.round(pairs.vectors / scales[:, None]).astype(np.int8),
        "scales": scales.astype(np.float32),
        "types": pairs.types.astype(np.uint8),
        "starts": pairs.starts.astype(np.uint16),
        "type_names": np.array(pairs.type_names),
        "smoothing": pairs.smoothing.astype(np.float32),
        "rivals": pairs.rivals.astype(np.float16),
        "fingerprint": np.array(fingerprint),
    }
    write_arrays(folder / FILE, arrays, compress=False)
    return folder / FILE
