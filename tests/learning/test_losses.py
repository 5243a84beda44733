"""Each loss by hand; ERDA's loss against its equations, one example at a time; relation embeddings."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from erda.learning.losses import (
    contrastive,
    cosine_similarity,
    cross_entropy,
    multi_margin,
    pairwise_margin,
    relation_embeddings,
)
from erda.methods.erda import Erda
from toy_world import toy_encoder, toy_relation

# one example, three relations, the first is true: similarities 0.5, 0.4, -0.1
ROW = torch.tensor([[0.5, 0.4, -0.1]])
TRUE = torch.tensor([0])


def test_cosine_similarity_by_hand() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    prototypes = torch.tensor([[1.0, 0.0], [-6.0, -8.0], [0.0, 9.0]])
    expected = torch.tensor([[0.6, -1.0, 0.8], [0.0, -0.8, 1.0]])
    torch.testing.assert_close(cosine_similarity(vectors, prototypes), expected)
    assert cosine_similarity(torch.zeros(1, 3), torch.ones(2, 3)).tolist() == [[0.0, 0.0]]


def test_cross_entropy_by_hand() -> None:
    expected = -math.log(math.exp(0.5) / (math.exp(0.5) + math.exp(0.4) + math.exp(-0.1)))
    assert cross_entropy(ROW, TRUE).item() == pytest.approx(expected, rel=1e-6)
    halved = -math.log(math.exp(1.0) / (math.exp(1.0) + math.exp(0.8) + math.exp(-0.2)))
    assert cross_entropy(ROW, TRUE, temperature=0.5).item() == pytest.approx(halved, rel=1e-6)


def test_multi_margin_by_hand() -> None:
    # max(0, 0.2 - 0.5 + 0.4) + max(0, 0.2 - 0.5 - 0.1) = 0.1 + 0, over two wrong relations
    assert multi_margin(ROW, TRUE, margin=0.2).item() == pytest.approx(0.05, abs=1e-6)
    # margin 0.7: 0.6 + 0.1
    assert multi_margin(ROW, TRUE, margin=0.7, average=False).item() == pytest.approx(
        0.35 * (ROW.shape[1] - 1), abs=1e-6
    )
    assert multi_margin(ROW, TRUE, margin=0.7).item() == pytest.approx(0.35, abs=1e-6)


def test_pairwise_margin_by_hand() -> None:
    assert pairwise_margin(ROW, TRUE, margin=0.2).item() == pytest.approx(0.1, abs=1e-6)
    assert pairwise_margin(ROW, TRUE, margin=0.05).item() == 0.0
    # the last relation is true, its nearest rival is the first: 0.2 + 0.1 + 0.5
    assert pairwise_margin(ROW, torch.tensor([2]), margin=0.2).item() == pytest.approx(0.8, abs=1e-6)


def test_contrastive_by_hand() -> None:
    true = torch.tensor([0.5, 0.9])
    negatives = torch.tensor([[0.4, 0.3], [0.1, 0.2]])
    # max(0, 0.01 - 0.5 + 0.7) = 0.21 and max(0, 0.01 - 0.9 + 0.3) = 0: mean 0.105
    assert contrastive(true, negatives, margin=0.01).item() == pytest.approx(0.105, abs=1e-6)


LOSSES: list[Callable[[Tensor, Tensor], Tensor]] = [
    cross_entropy,
    lambda s, t: multi_margin(s, t, margin=0.2),
    lambda s, t: pairwise_margin(s, t, margin=0.2),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_attract_the_true_relation_and_repel_its_rival(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    similarities = ROW.clone().requires_grad_()
    loss(similarities, TRUE).backward()
    assert similarities.grad is not None
    assert similarities.grad[0, 0] < 0, "the true relation must come closer"
    assert similarities.grad[0, 1] > 0, "its nearest rival must go away"


PAPERS = {
    "temperature": 0.2,
    "cross_entropy_weight": 1.0,
    "multi_margin_weight": 2.0,
    "pairwise_margin_weight": 3.0,
    "contrastive_weight": 0.5,
    "multi_margin": 0.2,
    "pairwise_margin": 0.3,
    "contrastive_margin": 0.1,
    "average_multi_margin": True,
}


def by_hand(o: Erda, vectors, prototypes, targets, exemplars) -> float:
    """Eq. 4 and 7 as loops over examples."""
    scores = [[F.cosine_similarity(v, p, dim=0).item() for p in prototypes] for v in vectors]
    loss, n = 0.0, len(targets)
    for row, true in zip(scores, targets.tolist(), strict=False):
        wrong = [score for column, score in enumerate(row) if column != true]
        loss -= o.cross_entropy_weight / n * torch.log_softmax(torch.tensor(row) / o.temperature, 0)[true].item()
        hinges = sum(max(0.0, o.multi_margin - row[true] + score) for score in wrong)
        loss += o.multi_margin_weight / n * hinges / (max(len(wrong), 1) if o.average_multi_margin else 1)
        if wrong:
            loss += o.pairwise_margin_weight / n * max(0.0, o.pairwise_margin - row[true] + max(wrong))
    for number, row in enumerate(exemplars):
        true = targets[row].item()
        negatives = sum(scores[n + 2 * number + which][true] for which in (0, 1))
        hinge = max(0.0, o.contrastive_margin - scores[row][true] + negatives)
        loss += o.contrastive_weight / len(exemplars) * hinge
    return loss


@pytest.mark.parametrize("changed", [{}, {"multi_margin_weight": 0.0}, {"average_multi_margin": False}])
@pytest.mark.parametrize(("n_relations", "exemplars"), [(5, [3, 0]), (5, []), (1, [1])])
def test_value_is_the_weighted_sum_of_the_losses(changed: dict, n_relations: int, exemplars: list[int]) -> None:
    method, generator = Erda(toy_encoder(), **PAPERS | changed), torch.Generator().manual_seed(0)
    vectors = torch.randn(4 + 2 * len(exemplars), 6, generator=generator, requires_grad=True)
    prototypes = torch.randn(n_relations, 6, generator=generator)
    targets = torch.randint(n_relations, (4,), generator=generator)
    loss = method.objective(vectors, prototypes, targets, exemplars)
    assert loss.item() == pytest.approx(by_hand(method, vectors, prototypes, targets, exemplars), rel=1e-4)
    assert torch.autograd.grad(loss, vectors)[0].isfinite().all()


def test_relation_embeddings_are_means_of_unit_names_and_exemplars() -> None:
    relations, names = [toy_relation(number) for number in range(3)], torch.tensor([[9.0, 0.0], [0.0, 9.0], [4.0, 4.0]])
    rows = relation_embeddings(relations, names, {"r0": torch.tensor([[0.0, 0.5]])})
    torch.testing.assert_close(rows, torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.5**0.5, 0.5**0.5]]))
