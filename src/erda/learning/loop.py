"""The one gradient loop: epochs of shuffled batches, Adam, gradients clipped; random state and threads around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from erda.errors import StreamError
from erda.learning.adam import Adam

Item = TypeVar("Item")


def descend(
    items: Sequence[Item],
    loss: Callable[[list[Item]], Tensor],
    parameters: Sequence[nn.Parameter],
    *,
    learning_rate: float | Sequence[float],
    generator: torch.Generator,
    epochs: int = 1,
    batch_size: int = 5,
    max_gradient_norm: float = 1.0,
) -> float:
    """Minimise `loss(batch)` over `items` with a new Adam; returns the mean loss of the last epoch.

    `learning_rate` is one for all parameters or one for each.
    Without a parameter there is nothing to do. A loss that no parameter can change is left alone; one that is no number
    ends it.
    """
    if not parameters:
        return math.nan
    optimizer = Adam(parameters, learning_rate=learning_rate)
    mean = math.nan
    for epoch in range(epochs):
        order = torch.randperm(len(items), generator=generator).tolist()
        total, n_batches = 0.0, 0
        for start in range(0, len(order), batch_size):
            value = loss([items[i] for i in order[start : start + batch_size]])
            if value.requires_grad:
                optimizer.zero_grad()
                value.backward()
                _clip(parameters, max_gradient_norm)
                optimizer.step()
            n_batches += 1
            number = value.item()
            if not math.isfinite(number):
                raise _broken_down(f"the loss of epoch {epoch + 1}, batch {n_batches} is {number}", learning_rate)
            total += number
        mean = total / max(n_batches, 1)
    if not all(parameter.isfinite().all() for parameter in parameters):
        raise _broken_down(f"weights are no numbers after {epochs} epochs", learning_rate)
    return mean


def _clip(parameters: Sequence[nn.Parameter], most: float) -> None:
    """`nn.utils.clip_grad_norm_`, which takes three times as long and multiplies by one where nothing is to be cut."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients:
        return
    norm = torch.stack(torch._foreach_norm(gradients)).norm().item()
    if not norm <= most:
        torch._foreach_mul_(gradients, most / (norm + 1e-6))


def _broken_down(what: str, learning_rate: float | Sequence[float]) -> StreamError:
    rates = dict.fromkeys([learning_rate] if isinstance(learning_rate, float | int) else learning_rate)
    said = " and ".join(f"{rate:g}" for rate in rates)
    return StreamError(f"Learning broke down: {what}. Lower learning_rate (it is {said}).")


@contextmanager
def seeded(seed: int, step: int) -> Iterator[torch.Generator]:
    """A generator for step `step` of a run, and dropout that follows it; global random state is left as it was."""
    derived = (seed * 1_000_003 + step * 7_919 + 17) % (2**63)
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derived)
        yield torch.Generator().manual_seed(derived)


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """So many threads of PyTorch's, and as many as before afterwards; None changes nothing."""
    before = torch.get_num_threads()
    if n is None or n == before:
        yield
        return
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
