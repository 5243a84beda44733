"""The model before a task teaches three stages of the one after it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from erda.encoders.trainable import embed
from erda.methods import trained as base
from erda.types import Example, Task
from erda_peers.sckd import Head, Sckd, Teacher
from toy_world import toy_encoder, toy_example, toy_questions, toy_relation, toy_task


def learned(n_tasks: int = 1, **settings: Any) -> Sckd:
    method = Sckd(toy_encoder(), **settings)
    for index in range(n_tasks):
        method.learn(toy_task(index))
    return method


def test_a_task_is_learned_alone_then_the_memory_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[Example], int, Sequence[float]]] = []

    def record(items: Sequence[Example], *_: object, **settings: Any) -> float:
        calls.append((list(items), settings["epochs"], settings["learning_rates"]))
        return 0.0

    monkeypatch.setattr(base, "descend", record)
    method = learned(2, new_epochs=4, memory_epochs=2, own_rate=0.5)
    assert [epochs for _, epochs, _ in calls] == [4, 1, 1] * 2
    assert calls[3][0] == list(toy_task(1).examples)
    assert [example.relation for example in calls[4][0]] == ["r0", "r1", "r2", "r3"]
    rates = calls[0][2]
    assert list(rates[-4:]) == [0.5] * 4, "the hidden layer and the classifier"
    assert {*rates[:-4]} == {method.encoder.learning_rate}


def test_pseudo_samples_lie_around_the_prototype_as_far_as_the_sentences_did() -> None:
    method = learned(2, spread=2.0)
    centres, owners = method._prototypes()
    assert owners.tolist() == [0, 1, 2, 3]
    exemplar = next(example for example in method.kept if example.relation == "r2")
    torch.testing.assert_close(centres[2], embed(method.encoder, [exemplar])[0])
    noise = torch.randn(4, 3000, centres.shape[1], generator=torch.Generator().manual_seed(0))
    drawn = method._pseudo(centres, owners, noise).view(4, 3000, -1)
    torch.testing.assert_close(drawn.mean(dim=1), centres, atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.std(dim=1), 2 * method._stack("deviation"), atol=0.1, rtol=0.1)


def test_deviations_are_those_of_the_sentences_taught_and_one_sentence_has_the_usual() -> None:
    method = Sckd(toy_encoder())
    examples = (*toy_task(0).examples, toy_example(5, 0))
    method.learn(Task(0, (*toy_task(0).relations, toy_relation(5)), examples))
    rows = method.rows["deviation"]
    shown = embed(method.encoder, [one for one in examples if one.relation == "r1"])
    assert rows["r1"].shape == shown.std(dim=0).shape
    torch.testing.assert_close(rows["r5"], (rows["r0"] + rows["r1"]) / 2)
    lonely = Sckd(toy_encoder())
    lonely.learn(Task(0, (toy_relation(0),), (toy_example(0, 0),)))
    assert not lonely.rows["deviation"]["r0"].any()


def test_hidden_states_are_normed_and_start_with_the_encoders_geometry() -> None:
    head = Sckd(toy_encoder()).shared
    features = torch.tensor([[1.0, 2.0, 3.0, 6.0]])
    hidden = Head(torch.eye(4), torch.zeros(4), torch.ones(1, 4), torch.zeros(1)).hidden(features)
    deviation = math.sqrt((4 + 1 + 0 + 9) / 4)
    torch.testing.assert_close(hidden, torch.tensor([[-2.0, -1.0, 0.0, 3.0]]) / deviation, atol=1e-4, rtol=0)
    assert torch.equal(head["weight"], torch.eye(len(head["weight"])))


def softmax(values: Sequence[float]) -> list[float]:
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def divergence(teacher: Sequence[float], student: Sequence[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(softmax(teacher), softmax(student), strict=True))


def cosines(one: Tensor, others: Tensor) -> list[float]:
    return [(one @ other / (one.norm() * other.norm())).item() for other in others]


def test_the_loss_of_the_memory_is_its_slow_loop() -> None:
    """One old exemplar, one new, two pseudo samples of each of two old relations and a new one: all terms."""
    settings = {"temperature": 0.4, "distillation_temperature": 3.0}
    weights = {"feature_weight": 0.3, "contrastive_weight": 0.5, "prediction_weight": 0.7}
    method = learned(2, **settings, **weights)
    generator = torch.Generator().manual_seed(1)
    dim = method.encoder.dim

    def head(n: int) -> Head:
        shapes = ((dim, dim), (dim,), (n, dim), (n,))
        return Head(*(torch.randn(shape, generator=generator) * 0.3 for shape in shapes))

    student, old_head = head(4), head(2)
    batch = [method.kept[0], method.kept[2]]
    then = torch.randn(dim, generator=generator)
    teacher = Teacher(old_head, {id(batch[0]): then})
    owners = torch.tensor([0, 0, 1, 1, 2, 2])
    pseudo = torch.randn(6, dim, generator=generator)
    features = method.encoder.encode(batch).detach()
    hidden, pseudo_hidden = student.hidden(features), student.hidden(pseudo)
    logits, pseudo_logits = student.logits(hidden).tolist(), student.logits(pseudo_hidden).tolist()

    slow = -sum(math.log(softmax(row)[target]) for row, target in zip(logits, (0, 2), strict=True)) / 2
    slow += -sum(math.log(softmax(row)[target]) for row, target in zip(pseudo_logits, owners.tolist(), strict=True)) / 6
    for anchor, own in ((0, (0, 1)), (1, (4, 5))):  # L_cl
        shares = softmax([value / 0.4 for value in cosines(hidden[anchor], pseudo_hidden)])
        slow += 0.5 * -sum(math.log(shares[column]) for column in own) / 2 / 2
    slow += 0.3 * (1 - cosines(features[0], then[None])[0])  # L_fd
    hidden_then, pseudo_then = old_head.hidden(then[None]), old_head.hidden(pseudo[:4])
    slow += (
        0.5
        * divergence(  # L_hd
            [value / 0.4 for value in cosines(hidden_then[0], pseudo_then)],
            [value / 0.4 for value in cosines(hidden[0], pseudo_hidden[:4])],
        )
    )
    taught = [*old_head.logits(hidden_then).tolist(), *old_head.logits(pseudo_then).tolist()]
    found = [logits[0][:2], *(row[:2] for row in pseudo_logits[:4])]
    for teaching, learning in zip(taught, found, strict=True):  # L_pd
        slow += 0.7 * 9 * divergence([value / 3 for value in teaching], [value / 3 for value in learning]) / 5
    assert method._memory_loss(batch, pseudo, owners, student, teacher).item() == pytest.approx(slow, rel=1e-4)


def test_without_a_teacher_only_classes_and_contrast_count() -> None:
    method = learned(1, prediction_weight=50.0, feature_weight=50.0)
    centres, owners = method._prototypes()
    first = method._memory_loss(method.kept, centres, owners, method.head, None).item()
    stranger = Teacher(method.head, {})
    assert method._memory_loss(method.kept, centres, owners, method.head, stranger).item() == pytest.approx(first)


def test_what_is_distilled_is_better_remembered() -> None:
    moved = []
    for weight in (0.0, 30.0):
        method = Sckd(toy_encoder(1), seed=1, feature_weight=weight)
        method.learn(toy_task(0, shots=8))
        kept = list(method.kept)
        method.learn(toy_task(1, shots=8))
        before = embed(method.encoder, kept)
        method.learn(toy_task(2, shots=8))
        moved.append((1 - torch.nn.functional.cosine_similarity(before, embed(method.encoder, kept))).mean().item())
    assert moved[1] < moved[0]


def test_scores_are_logits_of_the_hidden_states() -> None:
    method = learned(2)
    questions, _ = toy_questions(4)
    hidden = method.head.hidden(embed(method.encoder, questions))
    expected = hidden @ method._stack("row").t() + method._stack("row_bias")
    np.testing.assert_allclose(method.predict(questions).scores, expected.numpy(), atol=1e-5)
