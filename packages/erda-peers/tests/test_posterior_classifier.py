"""Posterior's classifier: its optimum, its weight by the number of examples, and the scores it changes."""

from pathlib import Path

import numpy as np
import pytest

from erda.methods.base import Method
from erda.methods.posterior import Posterior
from erda.types import Task
from erda_peers.posterior_classifier import (
    COUNT_AS_ONE,
    RIDGE,
    PosteriorClassifier,
    classifier_weight,
    fit_classifier,
)
from toy_world import toy_encoder, toy_example, toy_questions, toy_relation


def test_the_optimum_has_no_gradient() -> None:
    rng = np.random.default_rng(0)
    vectors, targets, weights = rng.normal(size=(60, 4)), rng.integers(0, 3, size=60), rng.uniform(0.5, 2, size=60)
    found = fit_classifier(vectors, targets, weights, 3)

    def slow(table: np.ndarray) -> float:
        total = 0.0
        for vector, target, weight in zip(vectors, targets, weights, strict=True):
            logits = vector @ table[:-1] + table[-1]
            total += weight * (np.log(np.exp(logits).sum()) - logits[target])
        return total / weights.sum() + RIDGE / 2 * float((table[:-1] ** 2).sum())

    for index in np.ndindex(found.shape):
        step = np.zeros_like(found)
        step[index] = 1e-3
        assert abs(slow(found + step) - slow(found - step)) / 2e-3 < 1e-3


def test_the_weight_grows_with_the_rarest_relations() -> None:
    assert classifier_weight(np.full(4, 16.0)) == pytest.approx(16 / COUNT_AS_ONE)
    assert classifier_weight(np.array([100.0, 10.0, 10.0])) == pytest.approx(3 / (0.01 + 0.1 + 0.1) / COUNT_AS_ONE)
    assert classifier_weight(np.array([100.0, 5.0, 5.0])) == 0
    assert classifier_weight(np.array([100.0, 0.0])) == 0


def taught(n: int, kind: type[Posterior] = PosteriorClassifier) -> Posterior:
    method = kind(toy_encoder())
    relations = tuple(map(toy_relation, range(6)))
    method.learn(Task(0, relations, tuple(toy_example(k, row) for k in range(6) for row in range(n))))
    return method


def test_scores_change_with_many_examples_only(tmp_path: Path) -> None:
    questions = toy_questions(6)[0]
    few, many = (taught(n, Posterior).predict(questions).scores for n in (3, 12))
    np.testing.assert_array_equal(taught(3).predict(questions).scores, few)
    method = taught(12)
    found = method.predict(questions).scores
    assert np.abs(found - many).max() > 0.1
    totals = [np.log(np.exp(scores.astype(np.float64)).sum(axis=1)) for scores in (found, many)]
    np.testing.assert_allclose(*totals, atol=1e-4)
    method.save(tmp_path / "saved")
    loaded = Method.load(tmp_path / "saved", encoder=toy_encoder())
    np.testing.assert_array_equal(loaded.predict(questions).scores, found)
