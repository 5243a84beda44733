"""Episodic memory: the examples that stand for what was learned, one a relation in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from erda.types import Example


def nearest_to_centroid(vectors: Tensor, n: int = 1, *, centre: Tensor | None = None) -> list[int]:
    """Rows of the `n` vectors closest (Euclidean) to `centre`, or to the mean of all (Eq. 5), closest first."""
    distances = torch.linalg.vector_norm(vectors - (vectors.mean(dim=0) if centre is None else centre), dim=1)
    return torch.argsort(distances, stable=True)[:n].tolist()


def nearest_of_each(
    examples: Sequence[Example], vectors: Tensor, *, n: int = 1, centres: Mapping[str, Tensor] | None = None
) -> list[Example]:
    """The `n` examples of each relation nearest to its centroid; `vectors` [n_examples, dim] are their embeddings.

    `centres` has the centroids where more is known of them than what these examples say.
    """
    rows: dict[str, list[int]] = {}
    for row, example in enumerate(examples):
        rows.setdefault(str(example.relation), []).append(row)
    known = centres or {}
    found = {name: nearest_to_centroid(vectors[own], n, centre=known.get(name)) for name, own in rows.items()}
    return [examples[rows[name][i]] for name, nearest in found.items() for i in nearest]
