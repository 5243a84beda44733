"""Significance tests, checked against SciPy, plain loops and hand-computed values."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from erda.benchmark.experiments import Line
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import Record
from erda.benchmark.report.comparison import Comparison, compare_lines
from erda.benchmark.statistics import holm, paired_t, relation_interval
from erda.errors import RecordError

# accuracies on 8000 test examples, as in a report
fractions = st.integers(0, 8000).map(lambda right: right / 8000)
pairs = st.lists(st.tuples(fractions, fractions), min_size=2, max_size=9)


def line(template: Record, label: str, last: dict[int, float], *, digest: str = "stream") -> Line:
    """Line with these final accuracies, by seed."""
    records = [
        replace(
            template,
            method=label,
            seed=seed,
            manifest={**template.manifest, "digest": f"{digest}-{seed}"},
            accuracy={key: [0.9, 0.5, value] for key in (ALL_SEEN, CANDIDATES)},
        )
        for seed, value in last.items()
    ]
    return Line(label, tuple(records))


@given(pairs)
def test_the_paired_t_test_equals_scipy(values: list[tuple[float, float]]) -> None:
    first, second = (np.array(side) for side in zip(*values, strict=True))
    differences = list(first - second)
    whole = {round(8000 * one) for one in differences}
    if len(whole) == 1:  # equal up to floating point
        assert paired_t(differences) is None
        return
    expected = stats.ttest_rel(first, second)
    assert paired_t(differences) == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-300)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_against_its_definition(ps: list[float]) -> None:
    """The corrected p is the smallest level at which the step-down procedure rejects."""
    corrected = holm(ps)
    for p, found in zip(ps, corrected, strict=True):
        expected = max(min(1.0, sum(1 for other in ps if other >= q) * q) for q in ps if q <= p)
        assert found == pytest.approx(expected)


def test_lines_are_paired_by_seed_and_corrected_together(template: Record) -> None:
    ours = {100: 0.55, 110: 0.53, 120: 0.57, 130: 0.51}
    erda = line(template, "erda", ours)
    emr = line(template, "emr", {130: 0.40, 120: 0.41, 110: 0.38, 100: 0.37})  # records in another order
    near = line(template, "near", {100: 0.54, 110: 0.54, 120: 0.56, 130: 0.52})
    found = compare_lines(erda, [emr, near], protocol=CANDIDATES)
    assert [(one.first, one.second, one.n) for one in found] == [("erda", "emr", 4), ("erda", "near", 4)]
    first, second = found
    expected = stats.ttest_rel(list(ours.values()), [0.37, 0.38, 0.41, 0.40])
    assert first.difference == pytest.approx(0.15)
    assert first.p == pytest.approx(expected.pvalue)
    assert first.p_corrected == pytest.approx(2 * expected.pvalue)
    assert (second.difference, second.p) == pytest.approx((0.0, 1.0))
    assert (first.note, second.note) == ("", "")
    assert compare_lines(erda, [], protocol=CANDIDATES) == ()


@pytest.mark.parametrize(("seeds", "said"), [((), "No common stream"), ((100,), "One common stream")])
def test_too_few_streams_give_a_note_instead_of_p(template: Record, seeds: tuple[int, ...], said: str) -> None:
    erda = line(template, "erda", {100: 0.5, 110: 0.6})
    other = line(template, "emr", {**dict.fromkeys(seeds, 0.4), 900: 0.1})
    (found,) = compare_lines(erda, [other], protocol=CANDIDATES)
    assert found.n == len(seeds)
    assert found.difference == (pytest.approx(0.1) if seeds else None)
    assert (found.p, found.p_corrected) == (None, None)
    assert found.note.startswith(said)
    assert "--seeds" in found.note


def test_a_protocol_that_was_not_measured_raises(template: Record) -> None:
    records = [replace(template, accuracy={**template.accuracy, CANDIDATES: None})]
    bare = Line("bare", tuple(records))
    with pytest.raises(RecordError):
        compare_lines(bare, [bare], protocol=CANDIDATES)
    note = "One common stream, and a test needs two or more: run both on more --seeds."
    (found,) = compare_lines(bare, [bare], protocol=ALL_SEEN)
    assert found == Comparison("bare", "bare", 1, 0.0, relation_interval=(0.0, 0.0), note=note)


def test_the_interval_over_relations_equals_a_bootstrap_relation_by_relation() -> None:
    rng = np.random.default_rng(5)
    tests = rng.integers(50, 150, size=30)
    right = rng.binomial(tests, rng.uniform(0.3, 0.95, size=30))
    means = []
    for _ in range(4000):
        chosen = rng.integers(0, 30, size=30)
        means.append(sum(right[i] for i in chosen) / sum(tests[i] for i in chosen))
    low, high = relation_interval(right.tolist(), tests.tolist())
    assert (low, high) == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.006)
    assert low < right.sum() / tests.sum() < high
    assert relation_interval([3, 3], [4, 4]) == (0.75, 0.75), "equal relations leave no uncertainty"
    assert relation_interval([3], [4]) is None
