"""The toy world of `erda.testing`, and tools for tests of our own methods."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from erda.methods.base import Method
from erda.testing import SEED, Toy
from erda.testing.toy_world import DIM, toy_encoder, toy_example, toy_questions, toy_relation, toy_task, word_vectors

__all__ = ["DIM", "toy_encoder", "toy_example", "toy_questions", "toy_relation", "toy_task", "word_vectors"]


class CopiedToy(Toy):
    """Learns the same tasks once for all tests, and hands out copies."""

    def learned(self, n_tasks: int = 2, *, seed: int = SEED) -> Any:
        return deepcopy(_learned(self.method, n_tasks, seed))


@cache
def _learned(method: type[Method], n_tasks: int, seed: int) -> Method:
    return Toy(method).learned(n_tasks, seed=seed)


def write_vectors(path: Path) -> Path:
    """The same vectors as a GloVe text file."""
    known = word_vectors()
    lines = [f"{word} {' '.join(f'{x:.6f}' for x in known.vectors[row].tolist())}" for word, row in known.rows.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Watch:
    """Replaces the gradient loop: records its arguments and leaves the weights unchanged."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], int]] = []
        self.before_step: Callable[[], None] = lambda: None

    def __call__(self, items: Sequence[Any], *_: object, **settings: Any) -> float:
        self.before_step()
        self.calls.append((list(items), settings["epochs"]))
        return 0.0

    @property
    def items(self) -> list[list[Any]]:
        """The items of each call."""
        return [items for items, _ in self.calls]
