"""Scores and confidences of questions, and which relations they answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from erda.app.calibration import LEAST_KNOWN
from erda.app.state import Thresholds
from erda.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores and confidences of questions for all relations: [n, n_relations] each.

    `least` is the default threshold of a confidence. Without it, all relations together must reach `LEAST_KNOWN`, and
    the first is the answer.
    """

    relations: tuple[str, ...]
    scores: np.ndarray  # of the method
    confidences: np.ndarray
    least: float | None

    @property
    def ranks(self) -> np.ndarray:
        """Columns by decreasing confidence, then by decreasing score: [n, n_relations]."""
        return np.lexsort((-self.scores, -self.confidences), axis=1)

    def holds(self, thresholds: Thresholds | None, least: float | None = None) -> np.ndarray:
        """Whether each relation is an answer, [n, n_relations]: `least`, or fitted thresholds, or the default."""
        if least is not None:
            return self.confidences >= least
        if thresholds is not None:
            return self.confidences >= np.array([thresholds.of(one) for one in self.relations])
        if self.least is not None:
            return self.confidences >= self.least
        known = self.confidences.sum(axis=1, keepdims=True) >= LEAST_KNOWN
        return np.asarray(known & (np.arange(len(self.relations)) == self.ranks[:, :1]))


def check_confidence(least: float | None) -> None:
    """Reject a minimum confidence outside 0 to 1."""
    if least is not None and not 0 <= least <= 1:
        raise DataError(f"min_confidence: must be between 0 and 1, got {least}.")
