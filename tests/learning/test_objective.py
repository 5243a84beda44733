"""The compiled loss of a batch and its gradient against those of PyTorch's operations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from erda.learning import objective as module
from erda.learning.objective import Objective

pytest.importorskip("numba", reason="the compiled loss needs Numba; without it PyTorch's operations do the work")

PAPERS = Objective(
    temperature=0.2,
    cross_entropy_weight=1.0,
    multi_margin_weight=1.0,
    pairwise_margin_weight=1.0,
    contrastive_weight=0.1,
    multi_margin=0.2,
    pairwise_margin=0.2,
    contrastive_margin=0.01,
    average_multi_margin=True,
)

weights = st.sampled_from([0.0, 0.1, 1.0, 2.5])
margins = st.sampled_from([0.0, 0.05, 0.3, 1.5])
objectives = st.builds(
    Objective,
    temperature=st.sampled_from([0.05, 0.2, 1.0]),
    cross_entropy_weight=weights,
    multi_margin_weight=weights,
    pairwise_margin_weight=weights,
    contrastive_weight=weights,
    multi_margin=margins,
    pairwise_margin=margins,
    contrastive_margin=margins,
    average_multi_margin=st.booleans(),
)


@settings(deadline=None)
@given(
    objective=objectives,
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 7), st.integers(2, 9), st.integers(0, 6)),
    seed=st.integers(0, 10_000),
)
def test_value_and_gradient_are_pytorchs(objective: Objective, sizes: tuple[int, int, int, int], seed: int) -> None:
    n, n_relations, dim, n_exemplars = sizes
    generator = torch.Generator().manual_seed(seed)
    exemplars = torch.randperm(n, generator=generator)[:n_exemplars].tolist()
    vectors = torch.randn(n + 2 * len(exemplars), dim, generator=generator, requires_grad=True)
    prototypes = torch.randn(n_relations, dim, generator=generator)
    targets = torch.randint(n_relations, (n,), generator=generator)
    given = (prototypes, targets, exemplars)
    expected, found = objective.by_torch(vectors, *given), objective(vectors, *given)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    slow, fast = (torch.autograd.grad(3 * loss, vectors)[0] for loss in (expected, found))
    torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-3)


def test_a_vector_that_is_no_number_gives_a_loss_that_is_none() -> None:
    vectors = torch.tensor([[1.0, math.nan], [1.0, 0.0]])
    assert math.isnan(PAPERS(vectors, torch.eye(2), torch.tensor([0, 1]), []).item())


def test_other_numbers_and_an_install_without_numba_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, targets = torch.tensor([[3.0, 4.0]]), torch.tensor([1])
    expected = PAPERS(vectors, torch.eye(2), targets, []).item()
    assert PAPERS(vectors.double(), torch.eye(2).double(), targets, []).item() == pytest.approx(expected, rel=1e-6)
    monkeypatch.setattr(module, "_COMPILED", False)
    assert PAPERS(vectors, torch.eye(2), targets, []).item() == pytest.approx(expected, rel=1e-6)
