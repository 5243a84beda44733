"""Episodic memory: select the exemplars of each relation, one per relation in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from erda.types import Example


def nearest_of_each(
    examples: Sequence[Example], vectors: np.ndarray, *, n: int = 1, centres: Mapping[str, np.ndarray] | None = None
) -> list[Example]:
    """Select the `n` examples of each relation nearest (Euclidean) to the mean of their `vectors` (Eq. 5).

    `centres` replaces the means. The nearest comes first.
    """
    rows: dict[str, list[int]] = {}
    for row, example in enumerate(examples):
        rows.setdefault(str(example.relation), []).append(row)
    found: list[Example] = []
    for name, own in rows.items():
        centre = centres[name] if centres and name in centres else vectors[own].mean(axis=0)
        distances = np.linalg.norm(vectors[own] - centre, axis=1)
        found += [examples[own[i]] for i in np.argsort(distances, kind="stable")[:n]]
    return found
