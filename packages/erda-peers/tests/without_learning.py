"""Replacements of the gradient loop."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from erda.encoders.trainable import TrainableEncoder
from erda.methods import trained
from erda.types import Example


def drift(encoder: TrainableEncoder) -> None:
    """Add 0.05 to every trained weight."""
    with torch.no_grad():
        for parameter in encoder.trained_parameters():
            parameter.add_(0.05)


def instead_of_learning(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], None] = lambda: None
) -> list[list[Example]]:
    """Replace the gradient loop by `change`; return the list of the items that it receives."""
    seen: list[list[Example]] = []

    def record(items: Sequence[Example], *_: object, **__: Any) -> float:
        seen.append(list(items))
        change()
        return 0.0

    monkeypatch.setattr(trained, "descend", record)
    return seen
