"""Is one method better than another? Tests on the differences of two lines, stream by stream.

Two lines are paired by seed: the same seed is the same stream, so most of what makes streams easy or hard cancels in
the difference. Two tests are made of the same differences d_1, ..., d_n:

- the paired t-test of the paper, which takes the differences to be normal;
- the exact sign-flip test, which takes nothing but that, if the methods are alike, each d_i could as well have come
  with the other sign. It is exact for any n, but its smallest p is 2 / 2^n.

Both are two-sided. Tests asked together are corrected together (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from erda.benchmark.records import Record
from erda.benchmark.report.experiments import Line, at_task
from erda.benchmark.report.tables import Summary
from erda.errors import RecordError

EXACT_UP_TO = 20  # streams; 2^20 sign patterns are counted in a moment, more are drawn
N_DRAWN = 200_000
DRAW_SEED = 0
LEVEL = 0.95  # of intervals
NOISE = 1e-12  # differences of fractions closer than this are equal: floating point, not measurement


@dataclass(frozen=True, slots=True)
class Comparison:
    """`first` minus `second` over the streams that both were run on; fractions.

    A p that cannot be had is None and `note` says why; `*_corrected` is by Holm over those asked together.
    """

    first: str
    second: str
    n: int
    difference: float | None  # mean; None without a common stream
    interval: tuple[float, float] | None = None  # 95 %, by the t distribution
    p_t: float | None = None
    p_sign: float | None = None
    p_t_corrected: float | None = None
    p_sign_corrected: float | None = None
    note: str = ""


def compare(reference: Line, others: Sequence[Line], *, protocol: str, k: int = -1) -> tuple[Comparison, ...]:
    """`reference` minus each of `others` by accuracy after task `k` (-1: the last), corrected as one family.

    Lines run on different streams under the same seed are refused (`RecordError`), see `different_streams`.
    """
    refused = [said for other in others if (said := different_streams(reference, other))]
    if refused:
        raise RecordError("\n".join(refused))
    found = [_compare_two(reference, other, protocol, k) for other in others]
    by_t = holm([one.p_t for one in found])
    by_sign = holm([one.p_sign for one in found])
    return tuple(
        replace(one, p_t_corrected=t, p_sign_corrected=sign) for one, t, sign in zip(found, by_t, by_sign, strict=True)
    )


def different_streams(first: Line, second: Line) -> str:
    """Why two lines must not be compared; "" where they may be."""
    others = {record.seed: record.digest for record in second.records}
    for record in first.records:
        digest = others.get(record.seed, record.digest)
        if digest != record.digest:
            shown = f"seed {record.seed}, manifests {record.digest[:8] or 'none'}, {digest[:8] or 'none'}"
            return (
                f"Cannot compare '{first.label}' with '{second.label}': they were run on different streams ({shown})."
            )
    return ""


def _compare_two(first: Line, second: Line, protocol: str, k: int) -> Comparison:
    ours = {record.seed: _accuracy(first, record, protocol, k) for record in first.records}
    theirs = {record.seed: _accuracy(second, record, protocol, k) for record in second.records}
    common = [seed for seed in ours if seed in theirs]
    differences = [ours[seed] - theirs[seed] for seed in common]
    summary = Summary.of(differences)
    return Comparison(
        first=first.label,
        second=second.label,
        n=len(common),
        difference=summary.mean if summary else None,
        interval=mean_interval(differences),
        p_t=paired_t(differences),
        p_sign=sign_flip(differences),
        note=" ".join(_notes(differences, sorted(set(ours) ^ set(theirs)))),
    )


def _accuracy(line: Line, record: Record, protocol: str, k: int) -> float:
    value = at_task(record.accuracy[protocol], k)
    if value is None:
        raise RecordError(f"'{line.label}' was not measured by protocol {protocol}: its dataset lists no candidates.")
    return value


def _notes(differences: Sequence[float], alone: Sequence[int]) -> list[str]:
    n = len(differences)
    notes = []
    if n == 0:
        notes.append("No common stream, so nothing to compare: run both on the same --seeds.")
    elif n == 1:
        notes.append("One common stream, and a test needs two or more: run both on more --seeds.")
    elif _is_constant(differences):
        notes.append("The difference is the same on every stream: the t-test is not defined.")
    if n and alone:
        notes.append(f"Without seed {', '.join(map(str, alone))}, which only one of the two has.")
    if n > EXACT_UP_TO:
        notes.append(f"Sign-flip test by {N_DRAWN} drawn patterns: too many streams to count all.")
    return notes


# -- tests on differences ----------------------------------------------------------------------------------------------


def paired_t(differences: Sequence[float]) -> float | None:
    """Two-sided p of the t-test that the mean difference is 0; None for fewer than two or where all are equal."""
    if len(differences) < 2 or _is_constant(differences):
        return None
    from scipy.special import stdtr  # the distribution function of Student's t

    mean, error = _mean_and_error(differences)
    return float(2.0 * stdtr(len(differences) - 1, -abs(mean / error)))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean by the t distribution; None for fewer than two values."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # its inverse

    mean, error = _mean_and_error(values)
    half = float(stdtrit(len(values) - 1, (1.0 + LEVEL) / 2.0)) * error
    return mean - half, mean + half


def sign_flip(differences: Sequence[float]) -> float | None:
    """Two-sided p of the sign-flip test: the share of sign patterns with a mean as far from 0 as the observed one.

    All 2^n patterns are counted up to n = 20, so p is exact; beyond, patterns are drawn by a fixed seed and the
    observed one counts among them. None for fewer than two differences.
    """
    n = len(differences)
    if n < 2:
        return None
    values = np.asarray(differences, dtype=np.float64)
    enough = abs(math.fsum(values)) - NOISE * max(1.0, float(np.abs(values).sum()))
    if n <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= enough))
    rng = np.random.default_rng(DRAW_SEED)
    sums = np.zeros(N_DRAWN)
    for value in values:
        sums += value * (2.0 * rng.integers(2, size=N_DRAWN) - 1.0)
    return (1 + int(np.sum(np.abs(sums) >= enough))) / (1 + N_DRAWN)


def smallest_sign_flip(n: int) -> float:
    """The smallest p that the exact sign-flip test can give with `n` streams: 2 of 2^n patterns."""
    return min(1.0, 2.0 / 2.0**n)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's correction: each p times the number of tests not yet rejected, never below a smaller p's, at most 1.

    None (a test that could not be made) stays None and does not count in the family.
    """
    made = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, index) in enumerate(made):
        highest = max(highest, min(1.0, (len(made) - rank) * p))
        corrected[index] = highest
    return corrected


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, of two values or more."""
    mean = math.fsum(values) / len(values)
    return mean, float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _is_constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= NOISE * max(1.0, *map(abs, values))
