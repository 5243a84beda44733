"""Episodic memory: the examples that stand for what was learned, one a relation in the paper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from erda.types import Example


def nearest_to_centroid(vectors: Tensor, n: int = 1) -> list[int]:
    """Rows of the `n` vectors closest (Euclidean) to the mean of all, closest first (Eq. 5): [n, dim] -> rows."""
    distances = torch.linalg.vector_norm(vectors - vectors.mean(dim=0), dim=1)
    return torch.argsort(distances, stable=True)[:n].tolist()


def nearest_of_each(examples: Sequence[Example], vectors: Tensor, *, n: int = 1) -> list[Example]:
    """The `n` examples of each relation nearest to its centroid; `vectors` [n_examples, dim] are their embeddings."""
    rows: dict[str | None, list[int]] = {}
    for row, example in enumerate(examples):
        rows.setdefault(example.relation, []).append(row)
    return [examples[own[i]] for own in rows.values() for i in nearest_to_centroid(vectors[own], n)]
