"""A world of a few words in which methods learn in milliseconds: word vectors, a real encoder, tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from erda.encoders.bilstm import BiLstmEncoder
from erda.encoders.glove import WordVectors
from erda.encoders.settings import BiLstmSettings
from erda.methods import trained
from erda.types import Entity, Example, Relation, Span, Task

NAMES = ("ada", "bob", "carl", "dora", "eve", "fay")
FILLERS = ("the", "of", "and", "in", "was", "who")
SIGNS = tuple(f"sign{i}" for i in range(12))  # the word that gives a relation away
DIM = 8


@cache
def word_vectors() -> WordVectors:
    """Random vectors; row 0 is the unknown word. Signs stand out."""
    words = (*NAMES, *FILLERS, *SIGNS)
    vectors = np.random.default_rng(7).normal(size=(len(words) + 1, DIM)).astype(np.float32)
    vectors[0] = 0
    vectors[-len(SIGNS) :] *= 2
    return WordVectors({word: row for row, word in enumerate(words, start=1)}, torch.from_numpy(vectors), "toy")


def write_vectors(path: Path) -> Path:
    """The same vectors as a GloVe text file."""
    known = word_vectors()
    lines = [f"{word} {' '.join(f'{x:.6f}' for x in known.vectors[row].tolist())}" for word, row in known.rows.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def toy_encoder(seed: int = 0) -> BiLstmEncoder:
    """The BiLSTM of the package, with a handful of hidden units."""
    encoder = BiLstmEncoder(word_vectors(), BiLstmSettings(hidden_size=8), seed=seed)
    encoder.learning_rate = 0.01  # so few parameters like large steps
    return encoder


def toy_relation(number: int) -> Relation:
    return Relation(f"r{number}", f"sign{number} of", f"the relation of sign{number}")


def toy_example(number: int, row: int, *, labelled: bool = True) -> Example:
    """Example `row` of relation `number`; head and tail change places in every other one."""
    rng = np.random.default_rng([number, row])
    fill = [str(word) for word in rng.choice(FILLERS, size=4)]
    one, two = (str(name) for name in rng.choice(NAMES, size=2, replace=False))
    cut = int(rng.integers(1, 4))
    tokens = (one, *fill[:cut], SIGNS[number], *fill[cut:], two)
    first, last = Entity(one, Span(0, 1), f"id-{one}"), Entity(two, Span(len(tokens) - 1, len(tokens)))
    head, tail = (first, last) if row % 2 else (last, first)
    relation = f"r{number}" if labelled else None
    return Example(tokens, head, tail, relation, f"{number}-{row}", "toy")


def toy_task(index: int, *, n_relations: int = 2, shots: int = 4) -> Task:
    """Task `index` brings the next `n_relations` relations."""
    numbers = range(index * n_relations, (index + 1) * n_relations)
    examples = tuple(toy_example(number, row) for row in range(shots) for number in numbers)
    return Task(index, tuple(toy_relation(number) for number in numbers), examples)


def toy_questions(n_relations: int, *, each: int = 4) -> tuple[list[Example], list[str]]:
    """Unseen examples without their relation, and the answers."""
    rows = [(number, row) for number in range(n_relations) for row in range(100, 100 + each)]
    return [toy_example(*row, labelled=False) for row in rows], [f"r{number}" for number, _ in rows]


def instead_of_learning(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], None] = lambda: None
) -> list[list[Example]]:
    """Replace the gradient loop by `change`; gives what it was handed."""
    seen: list[list[Example]] = []

    def record(items: Sequence[Example], *_: object, **__: Any) -> float:
        seen.append(list(items))
        change()
        return 0.0

    monkeypatch.setattr(trained, "descend", record)
    return seen
