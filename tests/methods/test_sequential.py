"""SeqRun keeps nothing, Joint everything, EMR one exemplar a relation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from erda.encoders.trainable import embed
from erda.learning.memory import nearest_to_centroid
from erda.methods import trained as base
from erda.methods.sequential import Emr, Joint, SeqRun
from erda.types import Example
from toy_world import instead_of_learning, toy_encoder, toy_questions, toy_task

KINDS = [SeqRun, Joint, Emr]


@pytest.fixture
def trained_on(monkeypatch: pytest.MonkeyPatch) -> list[list[Example]]:
    """Record the examples passed to the gradient loop in each task."""
    return instead_of_learning(monkeypatch)


def test_seqrun_sees_the_new_task_only(trained_on: list[list[Example]]) -> None:
    method = SeqRun(toy_encoder())
    for index in range(3):
        method.learn(toy_task(index))
    assert trained_on == [list(toy_task(index).examples) for index in range(3)]
    assert method.kept == ()


def test_joint_sees_everything_so_far(trained_on: list[list[Example]]) -> None:
    method = Joint(toy_encoder())
    for index in range(3):
        method.learn(toy_task(index))
    everything = [example for index in range(3) for example in toy_task(index).examples]
    assert trained_on == [everything[:8], everything[:16], everything]


def test_emr_sees_the_new_task_and_the_exemplars_of_earlier_ones(trained_on: list[list[Example]]) -> None:
    method = Emr(toy_encoder())
    for index in range(3):
        method.learn(toy_task(index))
    first, second, third = trained_on
    assert first == list(toy_task(0).examples)
    assert second[:8] == list(toy_task(1).examples)
    assert [example.relation for example in second[8:]] == ["r0", "r1"]
    assert [example.relation for example in third[8:]] == ["r0", "r1", "r2", "r3"]
    assert third[8:10] == second[8:]
    assert len(method.kept) == 6


def test_the_exemplars_of_emr_are_nearest_to_the_centroid_after_learning() -> None:
    method = Emr(toy_encoder(), memory_size=2)
    task = toy_task(0, shots=6)
    method.learn(task)
    own = [example for example in task.examples if example.relation == "r1"]
    nearest = [own[row] for row in nearest_to_centroid(embed(method.encoder, own), 2)]
    assert [example for example in method.kept if example.relation == "r1"] == nearest


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_logits_of_the_classifier(kind: type[SeqRun]) -> None:
    method = kind(toy_encoder())
    method.learn(toy_task(0))
    questions, _ = toy_questions(2)
    vectors = embed(method.encoder, questions)
    expected = vectors @ method.weight.t() + method.bias
    np.testing.assert_allclose(method.predict(questions).scores, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_the_loss_is_the_cross_entropy_of_the_true_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = SeqRun(toy_encoder()), list(toy_task(0).examples[:3])
    losses: list[float] = []

    def measure(items: Sequence[Example], loss: Callable[[list[Example]], torch.Tensor], *_: Any, **__: Any) -> None:
        losses.append(loss(batch).item())

    monkeypatch.setattr(base, "descend", measure)
    method.learn(toy_task(0))
    logits = torch.from_numpy(method.predict(batch).scores)
    rows = [method.index[example.relation or ""] for example in batch]
    slow = -sum((logits[i, rows[i]] - logits[i].exp().sum().log()).item() for i in range(3)) / 3
    assert losses == [pytest.approx(slow, rel=1e-5)]


def test_new_rows_are_initialised_like_linear_layers_and_old_rows_stay(
    trained_on: list[list[Example]],
) -> None:
    method = SeqRun(toy_encoder())
    method.learn(toy_task(0, n_relations=5))
    first = method.weight.clone()
    bound = 1 / method.encoder.dim**0.5
    assert 0.5 * bound < first.abs().max() <= bound
    assert 0 < method.bias.abs().max() <= bound
    method.learn(toy_task(1, n_relations=5))
    assert torch.equal(method.weight[:5], first)
    assert method.weight.shape == (10, method.encoder.dim)


def test_replay_keeps_what_fine_tuning_forgets() -> None:
    """After three tasks, SeqRun has forgotten the first; Joint and EMR still know it."""
    kept = {}
    for kind in KINDS:
        method = kind(toy_encoder(1), seed=1, epochs=12, **({"memory_size": 6} if kind is Emr else {}))
        for index in range(3):
            method.learn(toy_task(index, shots=12))
        questions, answers = toy_questions(6, each=10)
        best = method.predict(questions).best
        kept[kind.name] = np.mean([one == gold for one, gold in zip(best[:20], answers[:20], strict=True)])
    assert kept["seqrun"] < 0.1 < kept["emr"], kept
    assert kept["joint"] > 0.5, kept
