"""Means, deviations, intervals, and the paired t-test of whether one method is better than another.

The t-test uses the differences between runs on the same streams. It is two-sided, and Holm's method corrects the tests
of one table together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np

LEVEL = 0.95  # of intervals
N_RESAMPLES = 10_000  # of the bootstrap over relations
NOISE = 1e-12  # tolerance of floating point for differences of fractions


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, standard deviation (n - 1 in the denominator; None for a single value) and number of values."""

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary | None:
        """Summarise values; None if there are none."""
        found = list(values)
        if not found:
            return None
        return cls(fmean(found), stdev(found) if len(found) > 1 else None, len(found))


def paired_t(differences: Sequence[float]) -> float | None:
    """Two-sided p of the t-test for mean difference 0; None for fewer than two differences or equal ones."""
    if len(differences) < 2 or is_constant(differences):
        return None
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def relation_interval(right: Sequence[float], tests: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of sum(right) / sum(tests) under resampling of relations; None for fewer than two relations.

    Percentile bootstrap with one cluster per relation: `right` [n_relations] are right predictions (or differences of
    two methods' counts), `tests` [n_relations] test examples. Seeded, so that a table can be rebuilt.
    """
    if len(tests) < 2:
        return None
    weights = _weights(len(tests))
    resampled = (weights @ np.asarray(right, dtype=np.float64)) / (weights @ np.asarray(tests, dtype=np.float64))
    low, high = np.quantile(resampled, ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0)).tolist()
    return low, high


@lru_cache(maxsize=4)  # the tables of a report have few sizes; drawing takes 50 ms
def _weights(n: int) -> np.ndarray:
    """How often each resample [N_RESAMPLES] draws each of `n` relations."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=N_RESAMPLES).astype(np.float64)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's correction: each p times the number of tests not yet rejected, never below a smaller p's, at most 1.

    None (an undefined test) stays None and does not count as a test.
    """
    made = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, index) in enumerate(made):
        highest = max(highest, min(1.0, (len(made) - rank) * p))
        corrected[index] = highest
    return corrected


def is_constant(values: Sequence[float]) -> bool:
    """Whether all values are equal up to floating point."""
    return max(values) - min(values) <= NOISE * max(1.0, *map(abs, values))
