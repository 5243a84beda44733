"""A method of one's own: a question gets the relation of the most similar examples.

The entry point in pyproject.toml makes it known wherever this package is installed:

    pip install examples/own_method
    erda teach "founded by" "[[Tesla]] was started by {{Martin Eberhard}}." --method nearest-example
    erda run --method nearest-example,posterior --out runs/mine
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from erda import Example, Method, Task
from erda.fields import Count
from erda.types import ScoreKind


@dataclass(eq=False)
class NearestExample(Method):
    """The relation of the nearest examples, over a frozen encoder."""

    _: KW_ONLY
    n_nearest: Count = 1  # examples of a relation that count

    name: ClassVar[str] = "nearest-example"
    score_kind: ClassVar[ScoreKind] = "cosine"
    trains: ClassVar[bool] = False

    def _learn(self, task: Task, generator: np.random.Generator) -> None:
        vectors, rows = self._unit(task.examples), self._target_rows(task.examples)
        kept = dict(self.rows.get("vectors", {}))
        for relation in task.relations:
            own = vectors[rows == self.index[relation.id]]
            kept[relation.id] = np.concatenate([kept.get(relation.id, own[:0]), own])
        self.rows = {"vectors": kept}

    def _prepare(self) -> None:
        self.vectors = [self.rows["vectors"][relation.id] for relation in self.relations]

    def _scores(self, examples: Sequence[Example]) -> np.ndarray:
        cosines = [self._unit(examples) @ own.T for own in self.vectors]
        return np.stack([np.sort(one)[:, -self.n_nearest :].mean(axis=1) for one in cosines], axis=1)

    def _unit(self, examples: Sequence[Example]) -> np.ndarray:
        vectors = self.encoder.embed(examples)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
