"""Confidences against the slow, obvious computation, and the measures of them against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from erda.app.calibration import (
    CALIBRATIONS,
    LEAST_KNOWN,
    Calibration,
    auroc,
    calibration_error,
    calibration_of,
    measure,
    risk_at,
)
from erda.types import Predictions

SCORES = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.floats(-1e4, 1e4, width=32)
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(SCORES)
def test_confidences_are_probabilities_in_the_order_of_the_scores(scores: np.ndarray) -> None:
    found = CALIBRATIONS["log-likelihood"].confidences(scores)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= 1 + 1e-9).all()
    best = scores.argmax(axis=1)
    assert (found[np.arange(len(found)), best] == found.max(axis=1)).all()


def test_confidences_by_hand() -> None:
    calibration = Calibration(2.0, none=-1.0)
    (found,) = calibration.confidences(np.array([[2.0, 0.0]]))
    none = 2 * math.exp(-1)  # as often as the relations together, where all scores are 0
    assert found == pytest.approx(np.array([math.e, 1.0]) / (math.e + 1 + none))
    assert calibration.known(np.array([[2.0, 0.0]])) == pytest.approx((math.e + 1) / (math.e + 1 + none))


def test_what_no_relation_explains_is_refused_however_many_there_are() -> None:
    calibration = CALIBRATIONS["log-likelihood"]
    for n_relations in (1, 10, 1000):
        unlike, like = np.full((1, n_relations), -300.0), np.full((1, n_relations), -300.0)
        like[0, 0] = 300
        assert calibration.known(unlike)[0] < 0.01
        assert calibration.known(like)[0] > 0.99 > LEAST_KNOWN


def test_other_kinds_of_scores_never_refuse() -> None:
    for kind in ("cosine", "logit", "negative distance", None):
        predictions = Predictions(("a", "b"), np.array([[0.2, -0.4]], dtype=np.float32), kind)
        assert calibration_of(predictions).known(predictions.scores) == pytest.approx([1.0])


def test_auroc_counts_pairs() -> None:
    high, low = np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0])
    pairs = [(h > x) + (h == x) / 2 for h in high for x in low]
    assert auroc(high, low) == pytest.approx(np.mean(pairs))
    assert auroc(high, low[:0]) is None


def test_calibration_error_by_hand() -> None:
    confidences, right = np.array([0.95, 0.95, 0.55, 1.0]), np.array([True, False, True, True])
    # two bins: (0.95 + 0.95 + 1 - 2) and (0.55 - 1), four answers
    assert calibration_error(confidences, right, n_bins=10) == pytest.approx((0.9 + 0.45) / 4)
    assert calibration_error(confidences[:0], right[:0]) is None


def test_risk_falls_where_confidence_tells_right_from_wrong() -> None:
    confidences, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, True, False, False])
    assert [risk_at(confidences, right, share) for share in (0.25, 0.5, 1.0)] == [0, 0, 0.5]


def test_measure_counts_an_answer_to_an_unknown_relation_as_wrong() -> None:
    confidences = np.array([[0.8, 0.1], [0.1, 0.2]])
    found = measure(confidences, np.array([0, -1]))
    assert found.auroc == 1
    assert found.error == pytest.approx(1 - 0.8 / 0.9)
    assert found.open_error == pytest.approx((0.2 + 0.2) / 2)
    assert found.risk[4] == 0
    assert found.risk[9] == 0.5
    assert measure(confidences[:1], np.array([0])).auroc is None


def test_fewer_relations_and_examples_make_scores_count_less() -> None:
    calibration = CALIBRATIONS["log-likelihood"]
    assert calibration.given(40, 5) == calibration.given(1000, 50) == calibration
    widths = [calibration.given(*case).width for case in ((40, 5), (40, 2), (10, 5), (3, 5), (3, 0))]
    assert widths == sorted(widths)
    low = np.array([[-8.0, -25.0, -30.0]])
    assert calibration.known(low) < LEAST_KNOWN < calibration.given(3, 5).known(low)
    assert CALIBRATIONS["cosine"].given(3, 5) == CALIBRATIONS["cosine"]
