"""The background of an encoder: cluster centres of arbitrary sentences, which represent unknown relations.

`erda corpus background` writes it beside the weights. It is valid only for those weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erda.errors import ModelError
from erda.files import read_arrays, write_arrays

FILE = "background.npz"
AGAIN = "Rebuild it: erda corpus background."


@dataclass(frozen=True, slots=True)
class BackgroundFile:
    """Folder of a background and fingerprint of its weights; with a `remedy` it must exist, or answers would differ."""

    folder: Path
    fingerprint: str
    remedy: str = ""

    def read(self) -> np.ndarray | None:
        """Read the centres, [n, dim] float32; None if there is no background for these weights."""
        path = self.folder / FILE
        found = self._read(path) if path.is_file() else None
        if found is None and self.remedy:
            raise ModelError(f"{path}: is missing or belongs to other weights. {self.remedy}")
        return found

    def _read(self, path: Path) -> np.ndarray | None:
        arrays = read_arrays(path, error=ModelError, remedy=AGAIN)
        centres, made_with = arrays.get("centres"), arrays.get("fingerprint")
        if centres is None or made_with is None or centres.ndim != 2 or not np.isfinite(centres).all():
            raise ModelError(f"{path}: has no valid cluster centres. {AGAIN}")
        return centres.astype(np.float32) if str(made_with) == self.fingerprint else None


def save_background(folder: Path, centres: np.ndarray, fingerprint: str) -> Path:
    """Write centres in half precision, with the fingerprint of the weights that made them."""
    arrays = {"centres": centres.astype(np.float16), "fingerprint": np.array(fingerprint)}
    write_arrays(folder / FILE, arrays, compress=False)
    return folder / FILE


def centres_of(vectors: np.ndarray, n: int, *, seed: int = 0, n_rounds: int = 20) -> np.ndarray:
    """K-means centres of `vectors`: [min(n, n_vectors), dim]."""
    centres = vectors[np.random.default_rng(seed).permutation(len(vectors))[:n]]
    for _ in range(n_rounds):
        nearest = (vectors @ centres.T - np.square(centres).sum(axis=1) / 2).argmax(axis=1)
        counts = np.bincount(nearest, minlength=len(centres))[:, None]
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    return np.asarray(centres)
