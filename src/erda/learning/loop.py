"""The one gradient loop: epochs of shuffled batches, Adam, gradients clipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    learning_rate: float,
    generator: torch.Generator,
    epochs: int = 1,
    batch_size: int = 5,
    max_gradient_norm: float = 1.0,
) -> float:
    """Minimise `loss(batch)` over `items` with a new Adam; returns the mean loss of the last epoch.

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
                nn.utils.clip_grad_norm_(parameters, max_gradient_norm)
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


def _broken_down(what: str, learning_rate: float) -> StreamError:
    return StreamError(f"Learning broke down: {what}. Lower learning_rate (it is {learning_rate:g}).")
