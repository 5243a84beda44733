"""DCRE: its losses against slow computations, its descriptions and the fusion of ranks."""

import math

import numpy as np
import pytest
import torch
from without_learning import instead_of_learning

from erda.methods.posterior import sentences_of
from erda.types import Relation
from erda_peers.dcre import RANK_OFFSET, Dcre, hard_margin, ranks, soft_margin_triplet
from toy_world import toy_encoder, toy_questions, toy_task

DISTANCES = torch.tensor([[0.0, 0.3, 0.2, 0.9], [0.3, 0.0, 0.6, 0.1], [0.2, 0.6, 0.0, 0.5], [0.9, 0.1, 0.5, 0.0]])
SAME = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)


def test_the_soft_margin_compares_the_farthest_positive_with_the_nearest_negative() -> None:
    others = ~torch.eye(4, dtype=torch.bool)
    slow = [math.log1p(math.exp(0.3 - 0.2)), math.log1p(math.exp(0.3 - 0.1))]  # rows 2 and 3 have no positive
    torch.testing.assert_close(soft_margin_triplet(DISTANCES, SAME & others, ~SAME), torch.tensor(sum(slow) / 2))
    assert soft_margin_triplet(DISTANCES, SAME & ~SAME, ~SAME) == 0


def test_the_hard_margin_counts_only_hard_pairs() -> None:
    slow = 0.0
    for row in range(4):
        positives = [float(DISTANCES[row, i]) for i in range(4) if SAME[row, i]]
        negatives = [float(DISTANCES[row, i]) for i in range(4) if not SAME[row, i]]
        slow += sum(d**2 for d in positives if d > min(negatives))
        slow += sum(max(0.0, 0.25 - d) ** 2 for d in negatives if d < max(positives))
    torch.testing.assert_close(hard_margin(1 - DISTANCES, SAME, margin=0.25), torch.tensor(slow / 4))


def test_ranks_start_with_the_largest() -> None:
    assert ranks(torch.tensor([[0.1, 0.9, 0.5], [3.0, 1.0, 2.0]])).tolist() == [[2, 0, 1], [0, 2, 1]]


@pytest.mark.parametrize("centred", [False, True])
def test_scores_fuse_the_ranks_by_prototype_and_by_description(monkeypatch: pytest.MonkeyPatch, centred: bool) -> None:
    instead_of_learning(monkeypatch)
    method = Dcre(toy_encoder(), prototype_share=0.7, centred=centred, n_descriptions=3)
    for index in range(2):
        method.learn(toy_task(index))
    questions = toy_questions(4)[0][:6]
    by_prototype, by_description = (part.numpy() for part in method._similarities(questions))
    found = method.predict(questions).scores
    for row in range(len(questions)):
        for column in range(4):
            first, second = (1 + int((each[row] > each[row, column]).sum()) for each in (by_prototype, by_description))
            fused = 0.7 * RANK_OFFSET / (RANK_OFFSET + first) + 0.3 * RANK_OFFSET / (RANK_OFFSET + second)
            assert abs(found[row, column] - fused) < 1e-4
    assert len({*found[0].tolist()}) == 4, "equal fused ranks are told apart"


def test_patterns_are_further_descriptions() -> None:
    method, lines = Dcre(toy_encoder(), n_descriptions=1), ["[[X]] met {{Y}}", "{{Y}} was met by [[X]]"]
    plain, told = Relation("r", "meets"), Relation("r", "meets", "\n".join(lines))
    sentences = [sentences_of(told)[0], *sentences_of(told)[6:]]
    with torch.no_grad():
        vectors = torch.nn.functional.normalize(method.encoder.encode_blanked(sentences), dim=-1)
        found = method._describe([plain, told])
    torch.testing.assert_close(found, torch.stack([vectors[0], vectors.mean(dim=0)]))


def test_descriptions_are_trained_and_read_again_after_each_task() -> None:
    method = Dcre(toy_encoder(), learning_rate=0.01)
    method.learn(toy_task(0))
    before = method.descriptions.clone()
    method.learn(toy_task(1))
    assert method.descriptions.shape == (4, method.encoder.dim)
    assert not np.allclose(before, method.descriptions[:2])


@pytest.mark.parametrize("name", ["soft_margin_weight", "hard_margin_weight", "information_weight"])
def test_each_part_of_the_loss_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    instead_of_learning(monkeypatch)
    losses = []
    for weight in (0.0, 1.0, 2.0):
        method = Dcre(toy_encoder(), **{name: weight})
        for index in range(2):
            method.learn(toy_task(index))
        batch = [*toy_task(0).examples, *toy_task(1).examples]
        with torch.no_grad():
            losses.append(float(method._loss(batch, method.prototypes)))
    assert losses[0] < losses[1]
    assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-4)
