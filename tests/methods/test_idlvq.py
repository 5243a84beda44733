"""IDLVQ-C: how reference vectors start, their losses, and how they follow the encoder."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from erda.encoders.trainable import embed
from erda.methods.idlvq import IdlvqC
from erda.types import Example
from toy_world import Watch, toy_encoder, toy_questions, toy_task


def of(relation: str, examples: Sequence[Example]) -> list[Example]:
    return [example for example in examples if example.relation == relation]


def test_references_start_as_the_means_of_their_examples(watch: Watch) -> None:
    method = IdlvqC(toy_encoder())
    for index in range(2):
        method.learn(toy_task(index))
    for row, relation in enumerate(method.relations):
        own = of(relation.id, toy_task(row // 2).examples)
        torch.testing.assert_close(method.references[row], embed(method.encoder, own).mean(dim=0))
    assert [example.relation for example in watch.items[1][8:]] == ["r0", "r1"], "later tasks see the exemplars too"


def test_old_references_follow_the_drift_of_their_exemplars(watch: Watch) -> None:
    method = IdlvqC(toy_encoder(), memory_size=2)
    method.learn(toy_task(0))
    exemplars = {name: of(name, method.kept) for name in ("r0", "r1")}
    references = method.references.clone()
    before = {name: embed(method.encoder, kept) for name, kept in exemplars.items()}

    def drift() -> None:
        with torch.no_grad():
            for parameter in method.encoder.trained_parameters():
                parameter.add_(0.1)

    watch.before_step = drift
    old = {name: list(kept) for name, kept in exemplars.items()}
    method.learn(toy_task(1))
    for row, name in enumerate(("r0", "r1")):
        moved = (embed(method.encoder, old[name]) - before[name]).mean(dim=0)
        assert moved.abs().max() > 1e-3
        torch.testing.assert_close(method.references[row], references[row] + moved)


def distance(one: torch.Tensor, two: torch.Tensor) -> float:
    return sum((a - b) ** 2 for a, b in zip(one.tolist(), two.tolist(), strict=True))


def test_the_first_task_is_a_softmax_over_scaled_distances_with_compactness() -> None:
    method = IdlvqC(toy_encoder(), intra_weight=0.3)
    method.learn(toy_task(0))
    scale = torch.tensor(1.5)
    batch = list(toy_task(0).examples[:3])
    vectors = method.encoder.encode(batch).detach()
    slow = 0.0
    for vector, example in zip(vectors, batch, strict=True):
        distances = [distance(vector, reference) for reference in method.references]
        own = distances[method.index[example.relation or ""]]
        softmax = np.exp(-own / 1.5**2) / sum(np.exp(-d / 1.5**2) for d in distances)
        slow += (-np.log(softmax) + 0.3 * own) / 3
    assert method._base_loss(batch, method.references, scale).item() == pytest.approx(slow, rel=1e-4)


def test_later_tasks_are_a_margin_with_compactness_and_no_movement_of_exemplars() -> None:
    method = IdlvqC(toy_encoder(), margin=0.7, intra_weight=0.3, forgetting_weight=2.0)
    method.learn(toy_task(0))
    method.index |= {"r2": 2, "r3": 3}
    new, (exemplar, *_) = list(toy_task(1).examples[:2]), method.kept
    fresh = torch.randn(2, method.encoder.dim, generator=torch.Generator().manual_seed(0)) * 0.1
    anchor = torch.randn(method.encoder.dim, generator=torch.Generator().manual_seed(1)) * 0.1
    references = torch.cat([method.references, fresh])
    batch = [new[0], exemplar, new[1]]
    vectors = method.encoder.encode(batch).detach()
    slow = 0.0
    for vector, row in ((vectors[0], 2), (vectors[2], 3)):
        distances = [distance(vector, reference) for reference in references]
        nearest = min(d for column, d in enumerate(distances) if column != row)
        slow += (max(0.0, 0.7 + distances[row] - nearest) + 0.3 * distances[row]) / 2
    moved = 2.0 * distance(vectors[1], anchor)
    before = {id(exemplar): anchor}
    assert method._new_loss(batch, references, before).item() == pytest.approx(slow + moved, rel=1e-4)
    assert method._new_loss([exemplar], references, before).item() == pytest.approx(moved, rel=1e-4)
    assert method._new_loss([batch[0], batch[2]], references, before).item() == pytest.approx(slow, rel=1e-4)


def test_scores_are_negative_scaled_distances() -> None:
    method = IdlvqC(toy_encoder())
    method.learn(toy_task(0))
    assert method.shared["scale"].item() != 1.0, "the scale is learned"
    questions, _ = toy_questions(2)
    vectors = embed(method.encoder, questions)
    slow = [[-distance(v, r) / method.shared["scale"].item() ** 2 for r in method.references] for v in vectors]
    np.testing.assert_allclose(method.predict(questions).scores, slow, rtol=1e-3, atol=1e-4)
