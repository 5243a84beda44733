"""Adam as `torch.optim.Adam(fused=True)` computes it, without what that class loads.

The first optimizer of PyTorch's that a process makes imports its compiler (two seconds here, a fifth of a stream). The
step itself is one fused call, and a test holds the two against each other, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """One learning rate for all parameters, or one for each; the usual betas, no weight decay."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, learning_rate: float | Sequence[float]) -> None:
        self.parameters = list(parameters)
        rates = [learning_rate] * len(self.parameters) if isinstance(learning_rate, float | int) else learning_rate
        self.learning_rates = list(rates)
        self._means = [torch.zeros_like(one, memory_format=torch.preserve_format) for one in self.parameters]
        self._squares = [torch.zeros_like(one, memory_format=torch.preserve_format) for one in self.parameters]
        self._steps = [torch.zeros((), dtype=torch.float32, device=one.device) for one in self.parameters]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self.parameters:
            one.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient; those of a device and a rate together."""
        groups: dict[tuple[torch.device, float], list[tuple[int, Tensor]]] = {}
        for i, one in enumerate(self.parameters):
            if one.grad is not None:
                groups.setdefault((one.device, self.learning_rates[i]), []).append((i, one.grad))
        for (_, learning_rate), found in groups.items():
            rows = [i for i, _ in found]
            gradients = [gradient for _, gradient in found]
            steps = [self._steps[i] for i in rows]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                [self.parameters[i] for i in rows],
                gradients,
                [self._means[i] for i in rows],
                [self._squares[i] for i in rows],
                [],
                steps,
                amsgrad=False,
                lr=learning_rate,
                beta1=BETA_1,
                beta2=BETA_2,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
                grad_scale=None,
                found_inf=None,
            )
