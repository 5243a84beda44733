"""Each loss against a slow loop over its equation, and against values computed by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from erda.learning.losses import (
    contrastive,
    cosine_similarity,
    cross_entropy,
    multi_margin,
    pairwise_margin,
)

# one example, three relations, the first is true: similarities 0.5, 0.4, -0.1
ROW = torch.tensor([[0.5, 0.4, -0.1]])
TRUE = torch.tensor([0])


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    similarities = torch.rand(n, m, generator=generator, dtype=torch.float64) * 2 - 1
    return similarities, torch.randint(m, (n,), generator=generator)


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
    # max(0, 0.2 - 0.5 + 0.4) + max(0, 0.2 - 0.5 - 0.1) = 0.1 + 0
    assert multi_margin(ROW, TRUE, margin=0.2).item() == pytest.approx(0.1, abs=1e-6)
    # margin 0.7: 0.6 + 0.1
    assert multi_margin(ROW, TRUE, margin=0.7).item() == pytest.approx(0.7, abs=1e-6)
    assert multi_margin(ROW, TRUE, margin=0.7, average=True).item() == pytest.approx(0.35, abs=1e-6)


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


def slow_multi_margin(similarities: Tensor, targets: Tensor, margin: float) -> float:
    total = 0.0
    for row, target in zip(similarities.tolist(), targets.tolist(), strict=True):
        for column, value in enumerate(row):
            if column != target:
                total += max(0.0, margin - row[target] + value)
    return total / len(targets)


def slow_pairwise_margin(similarities: Tensor, targets: Tensor, margin: float) -> float:
    total = 0.0
    for row, target in zip(similarities.tolist(), targets.tolist(), strict=True):
        rivals = [value for column, value in enumerate(row) if column != target]
        total += max(0.0, margin - row[target] + max(rivals)) if rivals else 0.0
    return total / len(targets)


@settings(max_examples=50)
@given(batch=batches(), margin=st.floats(0.0, 0.5))
def test_margin_losses_equal_slow_loops(batch: tuple[Tensor, Tensor], margin: float) -> None:
    n_wrong = max(batch[0].shape[1] - 1, 1)
    slow = slow_multi_margin(*batch, margin)
    assert multi_margin(*batch, margin=margin).item() == pytest.approx(slow)
    assert multi_margin(*batch, margin=margin, average=True).item() == pytest.approx(slow / n_wrong)
    assert pairwise_margin(*batch, margin=margin).item() == pytest.approx(slow_pairwise_margin(*batch, margin))


@settings(max_examples=50)
@given(batch=batches(), temperature=st.floats(0.05, 2.0))
def test_cross_entropy_equals_a_slow_loop(batch: tuple[Tensor, Tensor], temperature: float) -> None:
    total = 0.0
    for row, target in zip(batch[0].tolist(), batch[1].tolist(), strict=True):
        total -= row[target] / temperature - math.log(sum(math.exp(value / temperature) for value in row))
    assert cross_entropy(*batch, temperature=temperature).item() == pytest.approx(total / len(batch[1]), abs=1e-9)


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


@pytest.mark.parametrize("loss", LOSSES)
def test_one_relation_gives_no_loss_and_no_gradient(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    similarities = torch.tensor([[0.3], [0.7]], requires_grad=True)
    value = loss(similarities, torch.tensor([0, 0]))
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-7)
    assert similarities.grad is not None
    torch.testing.assert_close(similarities.grad, torch.zeros(2, 1))
