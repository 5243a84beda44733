"""CPL: the contrastive loss within a batch and with prototypes, and the nearest mean."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from without_learning import drift, instead_of_learning

from erda.encoders.trainable import embed
from erda.types import Example, Task
from erda_peers.cpl import Cpl
from toy_world import toy_encoder, toy_questions, toy_task


def mean(method: Cpl, examples: Sequence[Example]) -> torch.Tensor:
    return F.normalize(embed(method.encoder, examples), dim=-1).mean(dim=0)


def test_the_new_task_is_learned_alone_then_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = instead_of_learning(monkeypatch)
    method = Cpl(toy_encoder(), new_epochs=2, memory_epochs=1)
    for index in range(2):
        method.learn(toy_task(index))
    assert [len(items) for items in seen] == [8, 8, 8, 8, 8, 8 + 2]
    assert {example.relation for example in seen[-1]} == {"r0", "r1", "r2", "r3"}


@pytest.mark.parametrize("shot_means", [False, True])
def test_prototypes_are_means_and_follow_their_exemplars(monkeypatch: pytest.MonkeyPatch, shot_means: bool) -> None:
    instead_of_learning(monkeypatch)
    method = Cpl(toy_encoder(), shot_means=shot_means)
    method.learn(toy_task(0))
    shots = [example for example in toy_task(0).examples if example.relation == "r1"]
    exemplar = [example for example in method.kept if example.relation == "r1"]
    torch.testing.assert_close(method.prototypes[1], mean(method, shots if shot_means else exemplar))
    before, exemplar_before = method.prototypes[1].clone(), mean(method, exemplar)

    instead_of_learning(monkeypatch, partial(drift, method.encoder))
    method.learn(toy_task(1))
    moved = mean(method, exemplar) - exemplar_before
    assert moved.abs().max() > 1e-3
    torch.testing.assert_close(method.prototypes[1], before + moved)
    later = [example for example in (toy_task(1).examples if shot_means else method.kept) if example.relation == "r3"]
    torch.testing.assert_close(method.prototypes[3], mean(method, later))


def test_prototypes_are_means_when_a_relation_is_taught_again(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_learning(monkeypatch)
    method = Cpl(toy_encoder(), shot_means=True)
    task = toy_task(0)
    half = len(task.examples) // 4  # examples come relation by relation
    for part in (task.examples[:half] + task.examples[-half:], task.examples[half:-half]):
        method.learn(Task(0, task.relations, part))
        torch.testing.assert_close(method._prototypes(()), method.prototypes)


def test_without_a_memory_prototypes_stay_at_the_means_of_the_shots(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_learning(monkeypatch)
    method = Cpl(toy_encoder(), memory_size=0)
    method.learn(toy_task(0))
    first = method.prototypes.clone()
    shots = [example for example in toy_task(0).examples if example.relation == "r0"]
    torch.testing.assert_close(first[0], mean(method, shots))
    method.learn(toy_task(1))
    torch.testing.assert_close(method.prototypes[:2], first)


def test_the_loss_equals_its_slow_computation() -> None:
    method = Cpl(toy_encoder(), margin=0.25, temperature=0.5)
    for index in range(2):
        method.learn(toy_task(index))
    batch = [*toy_task(1).examples[:3], method.kept[0]]  # r2, r3, r2, r0
    prototypes = torch.randn(4, method.encoder.dim, generator=torch.Generator().manual_seed(0))
    vectors = method.encoder.encode(batch).detach()
    owners = [method.index[example.relation or ""] for example in batch]
    assert owners == [2, 3, 2, 0]
    slow = 0.0
    for i, own in enumerate(owners):
        logits, positive = [], []
        for j, (vector, owner) in enumerate(zip([*vectors, *prototypes], [*owners, 0, 1, 2, 3], strict=True)):
            if i == j:
                continue
            s = (vectors[i] @ vector / (vectors[i].norm() * vector.norm())).item()
            if owner == own:
                positive.append(len(logits))
                logits.append(max(0.0, 1.25 - s) * (s - 0.75) / 0.5)
            else:
                logits.append(max(0.0, s + 0.25) * (s - 0.25) / 0.5)
        total = sum(math.exp(value) for value in logits)
        slow -= sum(math.log(math.exp(logits[p]) / total) for p in positive) / len(positive) / 4
    assert method._loss(batch, prototypes).item() == pytest.approx(slow, rel=1e-4)


def test_scores_are_cosines_with_the_prototypes() -> None:
    method = Cpl(toy_encoder())
    method.learn(toy_task(0))
    questions, _ = toy_questions(2)
    vectors = F.normalize(embed(method.encoder, questions), dim=-1)
    expected = vectors @ F.normalize(method.prototypes, dim=-1).t()
    np.testing.assert_allclose(method.predict(questions).scores, expected.numpy(), atol=1e-6)
