"""The gradient loop: one pass per epoch, order from the generator, clipped gradients."""

import math
from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from erda.errors import StreamError
from erda.learning.gradient_loop import descend


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def run(items: list[int], *, seed: int = 0, **settings: object) -> list[list[int]]:
    """Return the batches passed to the loss."""
    weight, seen = nn.Parameter(torch.ones(1)), []

    def loss(batch: list[int]) -> Tensor:
        seen.append(batch)
        return (weight**2).sum()

    descend(items, loss, [weight], learning_rates=[0.1], generator=generator(seed), **settings)
    return seen


def test_each_epoch_covers_every_item_once() -> None:
    seen = run(list(range(7)), epochs=2, batch_size=3)
    assert [len(batch) for batch in seen] == [3, 3, 1, 3, 3, 1]
    assert sorted(chain(*seen[:3])) == sorted(chain(*seen[3:])) == list(range(7))
    assert seen[:3] != seen[3:], "each epoch has its own order"


def test_the_order_comes_from_the_generator_alone() -> None:
    torch.manual_seed(1)
    first = run(list(range(9)))
    torch.manual_seed(2)
    assert run(list(range(9))) == first
    assert run(list(range(9)), seed=1) != first


def test_the_loss_is_minimised() -> None:
    weight = nn.Parameter(torch.tensor([3.0]))

    def loss(batch: list[float]) -> Tensor:
        return (weight - torch.tensor(batch).mean()).pow(2).sum()

    descend([1.0] * 4, loss, [weight], learning_rates=[0.1], generator=generator(), epochs=50, batch_size=2)
    assert abs(weight.item() - 1.0) < 0.05


def test_no_epochs_no_items_and_no_parameters_change_nothing() -> None:
    weight = nn.Parameter(torch.ones(1))
    how = {"learning_rates": [1.0], "generator": generator()}
    descend([1], lambda _: weight.sum(), [weight], epochs=0, **how)
    descend([], lambda _: weight.sum(), [weight], **how)
    assert weight.item() == 1.0
    descend([1, 2], lambda _: pytest.fail("no parameters"), [], **how)


def test_gradients_are_clipped_to_length_1() -> None:
    weight, norms = nn.Parameter(torch.tensor([3.0, 4.0])), []

    class Watched(torch.optim.Adam):
        def step(self) -> None:
            norms.append(weight.grad.norm().item())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Watched)
        for scale in (1.0, 0.01):
            descend([0], lambda _: scale * (weight**2).sum(), [weight], learning_rates=[0.1], generator=generator())  # noqa: B023
    assert norms == pytest.approx([1.0, 0.1], rel=1e-4)


def test_one_learning_rate_per_parameter() -> None:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    rates = [1e-2, 1e-1, 1e-2]
    descend([0], lambda _: torch.stack(list(weights)).sum(), weights, learning_rates=rates, generator=generator())
    steps = [1 - weight[0].item() for weight in weights]  # Adam's first step equals the rate
    assert steps == pytest.approx(rates, rel=1e-4)


def test_a_nan_loss_names_epoch_batch_and_learning_rate() -> None:
    weight, values = nn.Parameter(torch.ones(1)), iter([1.0, 1.0, 1.0, math.nan])
    with pytest.raises(StreamError, match=r"epoch 2, batch 1 is nan\. Lower learning_rate \(now 0\.1\)"):
        descend(
            [1, 2, 3], lambda _: weight.sum() * next(values), [weight], learning_rates=[0.1], generator=generator(),
            epochs=2, batch_size=1,
        )  # fmt: skip


def test_infinite_weights_raise_even_if_the_loss_is_finite() -> None:
    weight = nn.Parameter(torch.full((1,), 1e30))
    with pytest.raises(StreamError, match=r"weights are NaN or infinite after 1 epochs\. Lower learning_rate"):
        descend([1], lambda _: -weight.sum(), [weight], learning_rates=[3.4e38], generator=generator())
