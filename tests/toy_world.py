"""The toy world of `erda.testing`, and tools for tests of our own methods."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from erda.encoders.trainable import TrainableEncoder
from erda.methods import trained
from erda.testing.toy_world import (
    DIM,
    FILLERS,
    NAMES,
    SIGNS,
    toy_encoder,
    toy_example,
    toy_questions,
    toy_relation,
    toy_task,
    word_vectors,
)
from erda.types import Example

__all__ = [
    "DIM",
    "FILLERS",
    "NAMES",
    "SIGNS",
    "Watch",
    "drift",
    "instead_of_learning",
    "toy_encoder",
    "toy_example",
    "toy_questions",
    "toy_relation",
    "toy_task",
    "word_vectors",
    "write_vectors",
]


def write_vectors(path: Path) -> Path:
    """The same vectors as a GloVe text file."""
    known = word_vectors()
    lines = [f"{word} {' '.join(f'{x:.6f}' for x in known.vectors[row].tolist())}" for word, row in known.rows.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def drift(encoder: TrainableEncoder) -> None:
    """Add 0.05 to every trained weight."""
    with torch.no_grad():
        for parameter in encoder.trained_parameters():
            parameter.add_(0.05)


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


class Watch:
    """Replaces the gradient loop: records its arguments and leaves the weights unchanged."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], int]] = []
        self.before_step: Callable[[], None] = lambda: None

    def __call__(self, items: Sequence[Any], *_: object, **settings: Any) -> float:
        self.before_step()
        self.calls.append((list(items), settings["epochs"]))
        return 0.0
