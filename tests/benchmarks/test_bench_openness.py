"""What is taught and asked when known relations are told from unknown ones, on a toy dataset."""

from __future__ import annotations

from pathlib import Path

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


def test_known_relations_are_drawn_and_every_question_is_asked() -> None:
    draws = list(openness.fewrel_draws("test", 5, 2, 3))
    assert len({tuple(one.id for one in task.relations) for task, _ in draws}) > 1
    for task, questions in draws:
        assert len(task.relations) == 2
        assert len(task.examples) == 6
        assert questions == list(SOME[1::2])


def test_what_is_taught_is_not_asked_and_the_halves_share_no_sentence() -> None:
    sentences = {}
    for half in ("test", "validation"):
        for task, questions in openness.redoc41_draws(half, 2):
            assert not set(task.examples) & set(questions)
            assert any(question.relation is None for question in questions)
            sentences[half] = {one.tokens for one in (*task.examples, *questions)}
    assert not sentences["test"] & sentences["validation"]


def test_quality_is_measured_and_drawn(tmp_path: Path) -> None:
    ((task, questions),) = openness.fewrel_draws("test", 1, 2, 3)
    found = openness.asked("posterior", toy_encoder(), task, questions)
    assert found.auroc is not None
    assert found.auroc > 0.5
    lines = list(openness._lines("toy", [found], ">= 1", ""))
    assert lines[0].value == pytest.approx(100 * found.auroc)
    openness._draw({"toy": found.risk}, tmp_path / "risk.png")
    assert (tmp_path / "risk.png").stat().st_size > 1000
