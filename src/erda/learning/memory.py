"""Episodic memory: select the exemplars of each relation, one per relation in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from erda.types import Example


def nearest_to_centroid(vectors: np.ndarray, n: int = 1, *, centre: np.ndarray | None = None) -> list[int]:
    """Rows of the `n` vectors closest (Euclidean) to `centre` or, by default, to their mean (Eq. 5), closest first."""
    distances = np.linalg.norm(vectors - (vectors.mean(axis=0) if centre is None else centre), axis=1)
    found: list[int] = np.argsort(distances, kind="stable")[:n].tolist()
    return found


def nearest_of_each(
    examples: Sequence[Example], vectors: np.ndarray, *, n: int = 1, centres: Mapping[str, np.ndarray] | None = None
) -> list[Example]:
    """Select the `n` examples of each relation nearest to the mean of their `vectors`, or to that of `centres`."""
    rows: dict[str, list[int]] = {}
    for row, example in enumerate(examples):
        rows.setdefault(str(example.relation), []).append(row)
    known = centres or {}
    found = {name: nearest_to_centroid(vectors[own], n, centre=known.get(name)) for name, own in rows.items()}
    return [examples[rows[name][i]] for name, nearest in found.items() for i in nearest]
