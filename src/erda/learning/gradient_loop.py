"""The gradient loop of every trained method: shuffled batches, clipped gradients, Adam; seeds and threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from erda.errors import StreamError

Item = TypeVar("Item")
MAX_GRADIENT_NORM = 1.0


def descend(
    items: Sequence[Item],
    loss: Callable[[list[Item]], Tensor],
    parameters: Sequence[nn.Parameter],
    *,
    learning_rates: Sequence[float],
    generator: torch.Generator,
    epochs: int = 1,
    batch_size: int = 5,
) -> None:
    """Minimise `loss(batch)` over `items` with a new Adam.

    There is one learning rate per parameter. Without parameters, `loss` is never called. A loss without a gradient
    changes nothing. A NaN or infinite loss or weight raises a StreamError.
    """
    if not parameters:
        return
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter, rate in zip(parameters, learning_rates, strict=True):
        groups.setdefault(rate, []).append(parameter)
    optimizer = torch.optim.Adam([{"params": group, "lr": rate} for rate, group in groups.items()], fused=True)
    for epoch in range(epochs):
        order = torch.randperm(len(items), generator=generator).tolist()
        for batch, start in enumerate(range(0, len(order), batch_size), start=1):
            value = loss([items[i] for i in order[start : start + batch_size]])
            if value.requires_grad:
                optimizer.zero_grad()
                value.backward()
                nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT_NORM)
                optimizer.step()
            number = value.item()
            if not math.isfinite(number):
                raise _diverged(f"the loss of epoch {epoch + 1}, batch {batch} is {number}", groups)
    if not all(parameter.isfinite().all() for parameter in parameters):
        raise _diverged(f"weights are NaN or infinite after {epochs} epochs", groups)


def _diverged(symptom: str, rates: Iterable[float]) -> StreamError:
    current = " and ".join(f"{rate:g}" for rate in rates)
    return StreamError(f"Training diverged: {symptom}. Lower learning_rate (now {current}).")


@contextmanager
def seeded(seed: int, step: int) -> Iterator[torch.Generator]:
    """Yield a generator for step `step` of a run and seed dropout; restore the global random state afterwards."""
    derived = (seed * 1_000_003 + step * 7_919 + 17) % (2**63)
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derived)
        yield torch.Generator().manual_seed(derived)


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Set PyTorch's thread count and restore it afterwards; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
