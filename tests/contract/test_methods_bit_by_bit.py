"""What every method promises where relations are taught piece by piece, forgotten and brought back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_methods import KEEPS_EVERYTHING, build, learned, scores, taught

from erda.errors import ModelError, StreamError
from erda.methods import METHODS
from erda.methods.base import Method
from erda.types import Relation, Task
from toy_world import toy_encoder, toy_example, toy_questions, toy_relation, toy_task

pytestmark = pytest.mark.parametrize("name", sorted(METHODS))


def test_further_examples_of_a_known_relation_come_with_new_ones(name: str) -> None:
    method = learned(name)
    again = Relation("r1", "another name")
    examples = (toy_example(4, 0), *(toy_example(1, row) for row in range(9, 13)))
    method.learn(Task(2, (toy_relation(4), again), examples))
    assert method.predict(toy_questions(1)[0]).relations == ("r0", "r1", "r2", "r3", "r4")
    assert np.isfinite(scores(method)).all()
    assert method.relations[1] == again
    assert len([one for one in method.kept if one.relation == "r1"]) == len(
        [one for one in method.kept if one.relation == "r0"]
    ) + (4 if name in KEEPS_EVERYTHING else 0)


def test_a_relation_can_be_taught_in_two_pieces(name: str) -> None:
    method = build(name)
    method.learn(toy_task(0, n_relations=3, shots=5))
    for number in range(3):
        method.learn(taught(number, range(5, 60), index=number + 1))
    method.learn(Task(4, tuple(toy_relation(i) for i in range(3)), toy_task(0, n_relations=3, shots=60).examples))
    questions, answers = toy_questions(3, each=20)
    right = np.mean([best == gold for best, gold in zip(method.predict(questions).best, answers, strict=True)])
    assert right > 0.6
    assert len(method.relations) == 3


def test_a_first_teaching_may_be_five_examples(name: str) -> None:
    method = build(name)
    examples = (*(toy_example(0, row) for row in range(3)), *(toy_example(1, row) for row in range(2)))
    method.learn(Task(0, (toy_relation(0), toy_relation(1)), examples))
    assert np.isfinite(scores(method)).all()
    method.learn(toy_task(1, shots=30))
    assert np.isfinite(scores(method)).all()
    questions, answers = toy_questions(4, each=20)
    right = np.mean(
        [best == gold for best, gold in zip(method.predict(questions[40:]).best, answers[40:], strict=True)]
    )
    assert right > 0.4, "of the second task, among four relations"


def test_a_relation_can_be_forgotten_and_learned_again(name: str, tmp_path: Path) -> None:
    method = learned(name)
    method.forget("r1")
    assert method.predict(toy_questions(1)[0]).relations == ("r0", "r2", "r3")
    assert np.isfinite(scores(method)).all()
    assert not [one for one in method.kept if one.relation == "r1"]
    assert all({*rows} == {"r0", "r2", "r3"} for rows in method.rows.values())
    method.save(tmp_path / "saved")
    back = Method.load(tmp_path / "saved", encoder=toy_encoder(99))
    np.testing.assert_array_equal(scores(back), scores(method))
    for one in (method, back):
        one.learn(taught(1, range(4), index=2))
    assert method.predict(toy_questions(1)[0]).relations == ("r0", "r2", "r3", "r1")
    np.testing.assert_array_equal(scores(back), scores(method))


def test_everything_can_be_forgotten(name: str) -> None:
    method = learned(name, 1)
    for relation in ("r0", "r1"):
        method.forget(relation)
    with pytest.raises(StreamError, match="Nothing was learned yet"):
        scores(method)
    method.learn(toy_task(1))
    assert method.predict(toy_questions(1)[0]).relations == ("r2", "r3")


def test_only_what_is_known_can_be_forgotten(name: str) -> None:
    method = learned(name, 1)
    before = scores(method)
    with pytest.raises(StreamError, match=r"Unknown relation 'r7'\. Known: r0, r1\."):
        method.forget("r7")
    np.testing.assert_array_equal(scores(method), before)


def test_a_checkpoint_brings_everything_back_to_the_last_bit(name: str) -> None:
    method, other = learned(name), learned(name)
    checkpoint, before = method.checkpoint(), scores(method)
    assert {*checkpoint.weights} == {*method.encoder.trained_state()}, "never a frozen weight"
    for _ in range(2):
        method.learn(toy_task(2))
        method.forget("r0")
        method.learn(taught(1, range(10, 14)))
        assert not np.array_equal(scores(method)[:, 0], before[:, 0])
        method.restore(checkpoint)
        np.testing.assert_array_equal(scores(method), before)
    method.learn(toy_task(2))
    other.learn(toy_task(2))
    np.testing.assert_array_equal(scores(method), scores(other))
    wrong = replace(checkpoint, method="another")
    with pytest.raises(ModelError, match="A checkpoint of method 'another' cannot be restored"):
        method.restore(wrong)
