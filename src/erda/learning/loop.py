"""The one gradient loop: epochs of shuffled batches, Adam, gradients clipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

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
    """Minimise `loss(batch)` over `items` with a new Adam; returns the mean loss of the last epoch."""
    optimizer = Adam(parameters, learning_rate=learning_rate)
    mean = float("nan")
    for _ in range(epochs):
        order = torch.randperm(len(items), generator=generator).tolist()
        total, n_batches = 0.0, 0
        for start in range(0, len(order), batch_size):
            value = loss([items[i] for i in order[start : start + batch_size]])
            optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(parameters, max_gradient_norm)
            optimizer.step()
            total += value.item()
            n_batches += 1
        mean = total / max(n_batches, 1)
    return mean
