"""The encoder contract: embed sentences with two marked entities, and relation names, in one vector space.

The contract speaks NumPy. Encoders that can be trained add PyTorch tensors behind it (`erda.encoders.trainable`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from erda.encoders.background import BackgroundFile
from erda.encoders.unlabelled import Unlabelled, UnlabelledFile
from erda.errors import ModelError
from erda.types import EncoderSpec, Example

_watcher: ContextVar[Callable[[], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(each: Callable[[int], None]) -> Iterator[None]:
    """Call `each` with the number of sentences embedded so far in this thread; what it raises ends the embedding."""
    n_done = 0

    def count() -> None:
        nonlocal n_done
        n_done += 1
        each(n_done)

    before = _watcher.set(count)
    try:
        yield
    finally:
        _watcher.reset(before)


def embedded_one() -> None:
    """Report an embedded sentence to `watched`; slow encoders call it."""
    if count := _watcher.get():
        count()


_shares: ContextVar[bool] = ContextVar("shares", default=False)


@contextmanager
def sharing() -> Iterator[None]:
    """Embed on one core in this thread, so that other threads can use the other cores."""
    before = _shares.set(True)
    try:
        yield
    finally:
        _shares.reset(before)


def shares() -> bool:
    """Whether this thread embeds on one core."""
    return _shares.get()


class Encoder(ABC):
    """Text -> vectors. `embed` is thread-safe."""

    spec: EncoderSpec
    dim: int
    n_threads: int | None = None  # PyTorch threads during training and embedding; None keeps the current number
    background_file: BackgroundFile | None = None
    unlabelled_file: UnlabelledFile | None = None

    @abstractmethod
    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Embed marked sentences: [n_examples, dim] float32, in the order of `examples`.

        `blanked` replaces the names of both entities with the mask token, if the encoder has one.
        """

    @abstractmethod
    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed plain texts (relation names, descriptions): [n_texts, dim] float32."""

    def background(self) -> np.ndarray | None:
        """Cluster centres of arbitrary sentences, [n, dim]; None if no background was made with these weights."""
        return self.background_file.read() if self.background_file else None

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
