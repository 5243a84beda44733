"""Episodic memory: the examples that stand for what was learned, one a relation in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from erda.types import Example


def nearest_to_centroid(vectors: Tensor, n: int = 1) -> list[int]:
    """Rows of the `n` vectors closest (Euclidean) to the mean of all, closest first (Eq. 5): [n, dim] -> rows."""
    distances = torch.linalg.vector_norm(vectors - vectors.mean(dim=0), dim=1)
    return torch.argsort(distances, stable=True)[:n].tolist()


@dataclass(eq=False)
class Memory:
    """Exemplars by relation, in the order of learning."""

    exemplars: dict[str, tuple[Example, ...]] = field(default_factory=dict)

    def select(self, relation: str, examples: Sequence[Example], vectors: Tensor, *, n: int = 1) -> None:
        """Keep the `n` examples of `relation` nearest to their centroid."""
        self.exemplars[relation] = tuple(examples[i] for i in nearest_to_centroid(vectors, n))

    def select_all(self, examples: Sequence[Example], vectors: Tensor, *, n: int = 1) -> None:
        """`select` for every relation among `examples`; `vectors` [n_examples, dim] are their embeddings."""
        rows: dict[str, list[int]] = {}
        for row, example in enumerate(examples):
            rows.setdefault(example.relation or "", []).append(row)
        for relation, own in rows.items():
            self.select(relation, [examples[row] for row in own], vectors[own], n=n)

    def __iter__(self) -> Iterator[Example]:
        return (example for examples in self.exemplars.values() for example in examples)

    def __len__(self) -> int:
        return sum(len(examples) for examples in self.exemplars.values())
