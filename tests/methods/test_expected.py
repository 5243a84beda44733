"""Normal distributions of taught and unseen relations, compared with the formulas written out."""

import math

import numpy as np
import pytest

from erda.encoders.contract import unit_rows
from erda.methods.expected import CENTRE_COUNT, ENOUGH, MIXED_AT, NEVER_WEIGHT, Background, Expected, NeverSeen

DIM = 4


def drawn(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, DIM))


def slow(z: np.ndarray, mean: np.ndarray, n: float, spread: np.ndarray) -> float:
    """Compute the log-likelihood of one sentence under one relation."""
    total = 0.0
    for i in range(DIM):
        e = float(spread[i])
        total += (float(z[i]) - n * e / (n * e + 1) * float(mean[i])) ** 2 / (1 + e / (n * e + 1))
    return -total / 2


def test_likelihoods_are_the_formula() -> None:
    z, means, spread = drawn(5, 0), drawn(3, 1), np.square(drawn(1, 2)[0])
    counts = np.array([0.0, 1.0, 100.0])
    found = Expected.given(counts, means, spread).log_likelihoods(z)
    for i in range(5):
        for c in range(3):
            assert float(found[i, c]) == pytest.approx(slow(z[i], means[c], float(counts[c]), spread))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_an_unseen_relation_averages_an_empty_relation_and_the_centres(n: int) -> None:
    z, centres, spread = drawn(5, 0), drawn(n, 1), np.square(drawn(1, 2)[0])
    centre, basis = drawn(1, 3)[0], drawn(DIM, 4)
    found = NeverSeen.of(Background(centres), centre, basis, spread).log_likelihood(z)
    moved = (centres - centre) @ basis
    for i in range(5):
        expected = slow(z[i], np.zeros(DIM), 0, spread)
        if n:
            each = [slow(z[i], one, CENTRE_COUNT, spread) / MIXED_AT for one in moved]
            expected = (expected + MIXED_AT * math.log(np.mean(np.exp(each)))) / 2
        assert float(found[i, 0]) == pytest.approx(NEVER_WEIGHT * expected - (1 - NEVER_WEIGHT) * DIM / 2)


def test_the_background_replaces_missing_relations() -> None:
    background = Background(unit_rows(drawn(50, 0)) / 2)
    assert [background.n_missing(n) for n in (0, 1, ENOUGH, 100)] == [ENOUGH, ENOUGH - 1, 0, 0]
    assert Background(drawn(0, 0)).n_missing(1) == 0
    variance = 1 - float(np.square(background.centre).sum())
    assert float((background.within + background.between).trace()) == pytest.approx(variance)
    shape = np.cov(background.centres.T)
    np.testing.assert_allclose(
        background.between / background.between.trace(), shape / np.trace(shape), rtol=1e-6, atol=1e-9
    )
