"""Confidences against numbers worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from erda.app.calibration import CALIBRATIONS, LEAST_KNOWN, Calibration

SCORES = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-1e4, 1e4, width=32)
)


def known(calibration: Calibration, scores: np.ndarray) -> np.ndarray:
    return calibration.confidences(scores).sum(axis=1)


@settings(max_examples=60)
@given(SCORES)
def test_confidences_are_probabilities_in_the_order_of_the_scores(scores: np.ndarray) -> None:
    found = CALIBRATIONS["log-likelihood"].confidences(scores)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= 1 + 1e-9).all()
    assert (found[np.arange(len(found)), scores.argmax(axis=1)] == found.max(axis=1)).all()


def test_confidences_by_hand() -> None:
    calibration = Calibration(2.0, none=-1.0)
    (found,) = calibration.confidences(np.array([[2.0, 0.0]]))
    none = 2 * math.exp(-1)  # as often as the relations together, where all scores are 0
    assert found == pytest.approx(np.array([math.e, 1.0]) / (math.e + 1 + none))
    assert known(calibration, np.array([[2.0, 0.0]])) == pytest.approx((math.e + 1) / (math.e + 1 + none))


def test_what_no_relation_explains_is_refused_however_many_there_are() -> None:
    calibration = CALIBRATIONS["log-likelihood"]
    for n_relations in (1, 10, 1000):
        unlike, like = np.full((1, n_relations), -300.0), np.full((1, n_relations), -300.0)
        like[0, 0] = 300
        assert known(calibration, unlike)[0] < 0.01
        assert known(calibration, like)[0] > 0.99 > LEAST_KNOWN


def test_other_kinds_of_scores_never_refuse() -> None:
    for kind in ("cosine", "logit", "negative distance"):
        calibration = CALIBRATIONS[kind].given([1])
        assert known(calibration, np.array([[0.2, -0.4]], dtype=np.float32)) == pytest.approx([1.0])


def test_fewer_relations_and_examples_make_scores_count_less() -> None:
    calibration = CALIBRATIONS["log-likelihood"]
    assert calibration.given([5] * 40) == calibration.given([50] * 1000) == calibration
    widths = [calibration.given(one).width for one in ([5] * 40, [2] * 40, [5] * 10, [5] * 3, [0] * 3, [])]
    assert widths == sorted(widths)
    low = np.array([[-8.0, -25.0, -30.0]])
    assert known(calibration, low) < LEAST_KNOWN < known(calibration.given([5] * 3), low)
    assert CALIBRATIONS["cosine"].given([5] * 3) == CALIBRATIONS["cosine"]
