"""A similarity model without weights: vectors count the words outside the entities in hashed bins."""

import hashlib
import zlib
from collections.abc import Sequence

import numpy as np

from erda.types import Example


class ToySimilarity:
    """Stand-in for `SimilarityModel` in tests of the index and the augmentation."""

    def __init__(self, name: str = "toy", dim: int = 64) -> None:
        self.base = name
        self.dim = dim
        self.fingerprint = hashlib.sha256(f"{name} {dim}".encode()).hexdigest()
        self.n_encoded = 0
        self.n_calls = 0

    def encode(self, examples: Sequence[Example], *, batch_size: int = 64) -> np.ndarray:
        self.n_calls += 1
        self.n_encoded += len(examples)
        vectors = np.zeros((len(examples), self.dim), np.float32)
        for row, example in enumerate(examples):
            inside = {*range(example.head.span.start, example.head.span.end)}
            inside |= {*range(example.tail.span.start, example.tail.span.end)}
            for place, token in enumerate(example.tokens):
                if place not in inside:
                    vectors[row, zlib.crc32(token.lower().encode()) % self.dim] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
