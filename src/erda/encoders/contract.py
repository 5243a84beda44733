"""The encoder contract: embed sentences with two marked entities in one vector space; and statistics of the vectors.

The contract speaks NumPy. Encoders that can be trained add PyTorch tensors behind it (`erda.encoders.trainable`).

A file beside the weights (`tools/build_unlabelled.py`), valid only for those weights, describes vectors of entity pairs
that were never taught. Their cluster centres, the background, represent unknown relations (`erda.methods.expected`).
Their moments, and a sample with types and positions, represent everything that was never taught
(`erda.methods.openness`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from erda.errors import ModelError
from erda.files import file_state, read_arrays, write_arrays
from erda.types import EncoderSpec, Example

UNLABELLED = "unlabelled.npz"
STEPS = 127  # of an 8-bit number
T = TypeVar("T")
KINDS = {  # of the arrays in the file that are written as they are
    **dict.fromkeys(("mean", "variances", "smoothing"), np.float32),
    **dict.fromkeys(("axes", "centres"), np.float16),
    "types": np.uint8,
    "starts": np.uint16,
}
OTHERS = ("vectors", "scales", "type_names", "fingerprint")
REBUILD = "Reinstall erda, or rebuild it: python tools/build_unlabelled.py."

_watcher: ContextVar[Callable[[], None] | None] = ContextVar("watcher", default=None)
_shares: ContextVar[bool] = ContextVar("shares", default=False)


@contextmanager
def _within(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a variable of this thread for the duration of the context."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def watched(each: Callable[[int], None]) -> AbstractContextManager[None]:
    """Call `each` with the number of sentences embedded so far in this thread; what it raises ends the embedding."""
    numbers = count(1)
    return _within(_watcher, lambda: each(next(numbers)))


def embedded_one() -> None:
    """Report an embedded sentence to `watched`; slow encoders call it."""
    if watcher := _watcher.get():
        watcher()


def sharing() -> AbstractContextManager[None]:
    """Embed on one core in this thread, so that other threads can use the other cores."""
    return _within(_shares, True)


def shares() -> bool:
    """Whether this thread embeds on one core."""
    return _shares.get()


class Encoder(ABC):
    """Text -> vectors. `embed` is thread-safe."""

    spec: EncoderSpec
    dim: int
    pooled_layers: int = 1  # last layers whose states are averaged
    trained_on: tuple[str, ...] = ()  # Wikidata ids of the relations that its training read labels of
    n_threads: int | None = None  # PyTorch threads during training and embedding; None keeps the current number
    unlabelled_file: UnlabelledFile | None = None

    @abstractmethod
    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Embed marked sentences: [n_examples, dim] float32, in the order of `examples`.

        `blanked` replaces the names of both entities with the mask token, if the encoder has one.
        """

    def unlabelled(self) -> Unlabelled | None:
        """Statistics of unlabelled pairs of entities; None if none were made with these weights."""
        return self.unlabelled_file.read() if self.unlabelled_file else None

    def trained_state(self) -> dict[str, np.ndarray]:
        """Copy the trainable parameters. A frozen encoder has none."""
        return {}

    def load_trained_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore parameters copied by `trained_state`."""
        if state:
            raise ModelError(f"Encoder '{self.spec.name}' is frozen and cannot load trained weights.")


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale each row to length 1; a zero row stays zero: [n, dim]."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


# -- statistics of vectors --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Unlabelled:
    """Moments and cluster centres of the vectors of unlabelled pairs, and a sample of the pairs.

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
    centres: np.ndarray  # [n_centres, dim]


@dataclass(frozen=True, slots=True)
class UnlabelledFile:
    """Folder of the file, and fingerprint of its weights; with a `remedy` it must exist, or answers would differ."""

    folder: Path
    fingerprint: str
    remedy: str = ""

    def read(self) -> Unlabelled | None:
        """Read the pairs; None if there are none for these weights."""
        path = self.folder / UNLABELLED
        state = file_state(path)
        found = _read_unlabelled(path, self.fingerprint, self.remedy or REBUILD, state) if state else None
        if found is None and self.remedy:
            raise ModelError(f"{path}: is missing or belongs to other weights. {self.remedy}")
        return found


@lru_cache(maxsize=1)  # every teaching fits with them
def _read_unlabelled(path: Path, fingerprint: str, remedy: str, state: tuple[int, ...]) -> Unlabelled | None:
    """Read the file; `state` changes with its content."""
    arrays = read_arrays(path, error=ModelError, remedy=remedy)
    if arrays.keys() != {*KINDS, *OTHERS}:
        raise ModelError(f"{path}: has no valid statistics of unlabelled pairs. {remedy}")
    if str(arrays["fingerprint"]) != fingerprint:
        return None
    wide = {name: arrays[name].astype(np.float32 if arrays[name].dtype.kind == "f" else np.int64) for name in KINDS}
    vectors = arrays["vectors"].astype(np.float32) * arrays["scales"][:, None]
    return Unlabelled(**wide, vectors=vectors, type_names=tuple(map(str, arrays["type_names"])))


def save_unlabelled(folder: Path, pairs: Unlabelled, fingerprint: str) -> Path:
    """Write pairs with 8 bits per number of the sample, and 16 of the axes and centres."""
    scales = np.abs(pairs.vectors).max(axis=1) / STEPS
    arrays = {
        "vectors": np.round(pairs.vectors / scales[:, None]).astype(np.int8),
        "scales": scales.astype(np.float32),
        "type_names": np.array(pairs.type_names),
        "fingerprint": np.array(fingerprint),
    }
    arrays |= {name: getattr(pairs, name).astype(kind) for name, kind in KINDS.items()}
    write_arrays(folder / UNLABELLED, arrays, compress=False)
    return folder / UNLABELLED
