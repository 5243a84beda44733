"""A toy world for tests of methods: a dozen relations, each revealed by one word, and tiny encoders."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from erda.encoders.contract import Encoder
from erda.types import EncoderSpec, Entity, Example, Relation, Span, Task

if TYPE_CHECKING:
    from erda.encoders.bilstm import BiLstmEncoder, WordVectors

NAMES = ("ada", "bob", "carl", "dora", "eve", "fay")
FILLERS = ("the", "of", "and", "in", "was", "who")
SIGNS = tuple(f"sign{i}" for i in range(12))  # the word that reveals a relation
DIM = 8


@cache
def word_vectors() -> WordVectors:
    """Random vectors; row 0 is the unknown word. Sign vectors are twice as long."""
    import torch

    from erda.encoders.bilstm import WordVectors

    words = (*NAMES, *FILLERS, *SIGNS)
    vectors = np.random.default_rng(7).normal(size=(len(words) + 1, DIM)).astype(np.float32)
    vectors[0] = 0
    vectors[-len(SIGNS) :] *= 2
    return WordVectors({word: row for row, word in enumerate(words, start=1)}, torch.from_numpy(vectors), "toy")


class ToyWords(Encoder):
    """Frozen NumPy vectors, the sum over the words of a sentence; for methods that train nothing."""

    def __init__(self) -> None:
        self.spec, self.dim = EncoderSpec("toy-words", {}, "toy"), 2 * DIM

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Sum word vectors; words after the head count twice."""
        texts = [(*one.tokens, *one.tokens[one.head.span.start :]) for one in examples]
        rows = [np.sum([_word(word, self.dim) for word in words], axis=0) for words in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, self.dim)


@cache
def _word(word: str, dim: int) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=dim) * (2 if word in SIGNS else 1)


def toy_encoder(seed: int = 0) -> BiLstmEncoder:
    """The BiLSTM of the package with a handful of hidden units (extra `train`)."""
    from erda.encoders import BiLstmSettings
    from erda.encoders.bilstm import BiLstmEncoder

    encoder = BiLstmEncoder(word_vectors(), BiLstmSettings(hidden_size=8), seed=seed)
    encoder.learning_rate = 0.01  # few parameters need large steps
    return encoder


def toy_relation(number: int) -> Relation:
    """Relation `r{number}`."""
    return Relation(f"r{number}", f"sign{number} of", f"the relation of sign{number}")


@cache
def toy_example(number: int, row: int, *, labelled: bool = True) -> Example:
    """Example `row` of relation `number`; head and tail swap places in every other example."""
    rng = np.random.default_rng([number, row])
    fill = [str(word) for word in rng.choice(FILLERS, size=4)]
    one, two = (str(name) for name in rng.choice(NAMES, size=2, replace=False))
    cut = int(rng.integers(1, 4))
    tokens = (one, *fill[:cut], SIGNS[number], *fill[cut:], two)
    first, last = Entity(one, Span(0, 1), f"id-{one}"), Entity(two, Span(len(tokens) - 1, len(tokens)))
    head, tail = (first, last) if row % 2 else (last, first)
    return Example(tokens, head, tail, f"r{number}" if labelled else None, f"{number}-{row}", "toy")


def toy_task(index: int, *, n_relations: int = 2, shots: int = 4) -> Task:
    """Task `index` brings the next `n_relations` relations."""
    numbers = range(index * n_relations, (index + 1) * n_relations)
    examples = tuple(toy_example(number, row) for row in range(shots) for number in numbers)
    return Task(index, tuple(toy_relation(number) for number in numbers), examples)


def toy_questions(n_relations: int, *, each: int = 4) -> tuple[list[Example], list[str]]:
    """Unseen examples without their relation, and the answers."""
    rows = [(number, row) for number in range(n_relations) for row in range(100, 100 + each)]
    return [toy_example(*row, labelled=False) for row in rows], [f"r{number}" for number, _ in rows]
