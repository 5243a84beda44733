"""Losses of contrastive methods and of distillation against slow loops and values computed by hand."""

import math

import pytest
import torch

from erda_peers.contrastive_losses import distillation, relaxed, supervised_contrastive


def test_supervised_contrastive_by_hand() -> None:
    similarities = torch.tensor([[0.5, 0.1, 0.3], [0.2, 0.2, 0.2]])
    same = torch.tensor([[True, False, True], [False, False, False]])
    total = math.exp(1.0) + math.exp(0.2) + math.exp(0.6)  # the second row has no positive
    expected = -(math.log(math.exp(1.0) / total) + math.log(math.exp(0.6) / total)) / 2
    assert supervised_contrastive(similarities, same, temperature=0.5).item() == pytest.approx(expected, rel=1e-6)
    counted = torch.tensor([[False, True, True], [True, True, True]])
    alone = -math.log(math.exp(0.6) / (math.exp(0.2) + math.exp(0.6)))
    found = supervised_contrastive(similarities, same, temperature=0.5, counted=counted)
    assert found.item() == pytest.approx(alone, rel=1e-6)
    none = similarities.requires_grad_()
    supervised_contrastive(none, torch.zeros_like(same), temperature=0.5).backward()
    assert none.grad is not None
    assert none.grad.abs().sum() == 0


@pytest.mark.parametrize(("seed", "temperature"), [(0, 0.05), (1, 0.1), (2, 0.5), (3, 1.0), (4, 2.0)])
def test_supervised_contrastive_equals_a_slow_loop(seed: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    similarities = torch.rand(seed + 1, 5, generator=generator, dtype=torch.float64) * 2 - 1
    targets = torch.randint(5, (seed + 1,), generator=generator)
    same = torch.arange(similarities.shape[1]) % 2 == targets[:, None] % 2
    rows = []
    for row, positive in zip((similarities / temperature).tolist(), same.tolist(), strict=True):
        total = sum(math.exp(value) for value in row)
        shares = [math.log(math.exp(value) / total) for value, is_same in zip(row, positive, strict=True) if is_same]
        rows += [-sum(shares) / len(shares)] if shares else []
    expected = sum(rows) / len(rows) if rows else 0.0
    assert supervised_contrastive(similarities, same, temperature=temperature).item() == pytest.approx(expected)


def test_relaxed_by_hand() -> None:
    similarities = torch.tensor([[0.9, 0.2, 0.5, -0.4]], requires_grad=True)
    same = torch.tensor([[True, True, False, False]])
    found = relaxed(similarities, same, margin=0.3)
    # (1.3 - 0.9)(0.9 - 0.7), (1.3 - 0.2)(0.2 - 0.7), (0.5 + 0.3)(0.5 - 0.3), 0 beyond the margin
    torch.testing.assert_close(found, torch.tensor([[0.08, -0.55, 0.16, 0.0]]))
    found.sum().backward()
    torch.testing.assert_close(similarities.grad, torch.tensor([[0.4, 1.1, 0.8, 0.0]]))


def test_distillation_by_hand() -> None:
    teacher, scores = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    share = math.exp(1.0) / (math.exp(1.0) + 1)  # temperature 2
    expected = 4 * (share * math.log(share / 0.5) + (1 - share) * math.log((1 - share) / 0.5))
    assert distillation(scores, teacher, temperature=2.0).item() == pytest.approx(expected, rel=1e-5)
    assert distillation(teacher + 3, teacher, temperature=2.0).item() == pytest.approx(0, abs=1e-6)
    assert distillation(scores[:0], teacher[:0], temperature=2.0).item() == 0
