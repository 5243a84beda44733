"""Taught and asked examples of the open-set benchmark, and its measures, on a toy dataset."""

from pathlib import Path

import numpy as np
import pytest

import openness
from erda.data.dataset import Dataset
from toy_world import toy_encoder, toy_example, toy_relation

RELATIONS = tuple(toy_relation(number) for number in range(4))
SOME = tuple(toy_example(number, row) for number in range(4) for row in range(12))
UNRELATED = tuple(toy_example(9, row, labelled=False) for row in range(12))


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset("toy", RELATIONS, SOME, SOME[::2], SOME[1::2], unrelated=UNRELATED)
    monkeypatch.setattr(openness, "load_dataset", lambda name: dataset)


def test_known_relations_are_sampled_and_every_question_is_asked() -> None:
    draws = list(openness.fewrel_draws("test", 5, 2, 3))
    assert len({tuple(one.id for one in task.relations) for task, _ in draws}) > 1
    for task, questions in draws:
        assert len(task.relations) == 2
        assert len(task.examples) == 6
        assert questions == list(SOME[1::2])


def test_taught_examples_are_not_asked_and_the_halves_share_no_sentence() -> None:
    sentences = {}
    for half in ("test", "validation"):
        for task, questions in openness.redoc41_draws(half, 2):
            assert not set(task.examples) & set(questions)
            assert any(question.relation is None for question in questions)
            sentences[half] = {one.tokens for one in (*task.examples, *questions)}
    assert not sentences["test"] & sentences["validation"]


def test_quality_is_measured_and_plotted(tmp_path: Path) -> None:
    ((task, questions),) = openness.fewrel_draws("test", 1, 2, 3)
    found = openness.asked("posterior", toy_encoder(), task, questions)
    assert found.auroc is not None
    assert found.auroc > 0.5
    lines = list(openness._lines("toy", [found], ">= 1", ""))
    assert lines[0].value == pytest.approx(100 * found.auroc)
    openness._draw({"toy": found.risk}, tmp_path / "risk.png")
    assert (tmp_path / "risk.png").stat().st_size > 1000


def test_hand_computed_calibration_error() -> None:
    confidences, right = np.array([0.95, 0.95, 0.55, 1.0]), np.array([True, False, True, True])
    # two bins: (0.95 + 0.95 + 1 - 2) and (0.55 - 1), four answers
    assert openness.calibration_error(confidences, right, n_bins=10) == pytest.approx((0.9 + 0.45) / 4)
    assert openness.calibration_error(confidences[:0], right[:0]) is None
    assert [openness.risk_at(confidences, np.array([True, False, False, True]), share) for share in (0.5, 1.0)] == [
        0,
        0.5,
    ]


def test_measure_counts_an_answer_to_an_unknown_relation_as_wrong() -> None:
    confidences = np.array([[0.8, 0.1], [0.1, 0.2]])
    found = openness.quality_of(confidences, np.array([0, -1]))
    assert found.auroc == 1
    assert found.error == pytest.approx(1 - 0.8 / 0.9)
    assert found.open_error == pytest.approx((0.2 + 0.2) / 2)
    assert found.risk[4] == 0
    assert found.risk[9] == 0.5
    assert openness.quality_of(confidences[:1], np.array([0])).auroc is None
