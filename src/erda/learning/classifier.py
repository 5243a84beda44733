"""A softmax classifier that grows with the relations."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GrowingClassifier(nn.Module):
    """One row of weights a relation: [n_examples, dim] -> logits [n_examples, n_relations]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, dim))
        self.bias = nn.Parameter(torch.zeros(0))

    def grow(self, n_relations: int, generator: torch.Generator) -> None:
        """Rows for new relations, drawn as `nn.Linear` draws its own; the old rows stay as they are."""
        n_new, dim = n_relations - self.weight.shape[0], self.weight.shape[1]
        bound = 1 / math.sqrt(dim)
        rows = torch.empty(n_new, dim + 1).uniform_(-bound, bound, generator=generator).to(self.weight.device)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), rows[:, :dim]]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), rows[:, dim]]))

    def put(self, weight: Tensor, bias: Tensor) -> None:
        """Take over saved rows."""
        self.weight, self.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits of vectors."""
        return F.linear(vectors, self.weight, self.bias)
