"""EMAR: episodic memory activation and reconsolidation (Han et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from erda.encoders.base import embed
from erda.fields import Count, Number
from erda.learning.loop import descend
from erda.learning.losses import cosine_similarity, cross_entropy
from erda.learning.memory import Memory
from erda.methods.base import LearningRate, Method, NotTiny, State
from erda.methods.saving import memory_from_json, memory_to_json
from erda.types import Example, Task


@dataclass(eq=False)
class Emar(Method):
    """Learned relation vectors, replayed with the memory; exemplars then practise finding their prototypes."""

    _: KW_ONLY
    new_epochs: Number = 1  # on the new task alone
    iterations: Number = 2  # of activation followed by reconsolidation
    activation_epochs: Number = 1  # on the new task and the memory
    reconsolidation_epochs: Number = 1  # on the memory, against prototypes
    batch_size: Count = 5
    learning_rate: LearningRate = 0.0  # 0: the encoder's own
    temperature: NotTiny = 0.2  # of the softmax over cosine similarities, as for ERDA
    memory_size: Number = 1  # exemplars a relation; 0: no reconsolidation, and prototypes are the learned vectors
    max_gradient_norm: NotTiny = 1.0

    name: ClassVar[str] = "emar"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.memory = Memory()
        self.vectors = nn.Parameter(torch.zeros(0, self.encoder.dim, device=self.encoder.device))  # r_i, learned
        self.prototypes = self.vectors.detach()  # what predictions are compared with

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        new = list(task.examples)
        drawn = torch.randn(len(task.relations), self.encoder.dim, generator=generator) / math.sqrt(self.encoder.dim)
        self.vectors = nn.Parameter(torch.cat([self.vectors.detach(), drawn.to(self.encoder.device)]))
        self._descend(new, self.vectors, generator, epochs=self.new_epochs)
        self.memory.select_all(new, embed(self.encoder, new), n=self.memory_size)
        exemplars = list(self.memory)
        kept = {id(example) for example in exemplars}
        both = [example for example in new if id(example) not in kept] + exemplars
        for _ in range(self.iterations):
            self._descend(both, self.vectors, generator, epochs=self.activation_epochs)
            self._descend(exemplars, self._means()[0], generator, epochs=self.reconsolidation_epochs)
        means, sizes = self._means()
        self.prototypes = (self.vectors.detach() + sizes * means) / (1 + sizes)

    def _descend(
        self, examples: Sequence[Example], vectors: Tensor, generator: torch.Generator, *, epochs: int
    ) -> None:
        """Epochs of cross-entropy between examples and one vector a relation, which learns too where it can."""
        self.encoder.train()
        descend(
            examples,
            lambda batch: self._loss(batch, vectors),
            [*self.encoder.trained_parameters(), self.vectors],
            learning_rate=self.learning_rate or self.encoder.learning_rate,
            generator=generator,
            epochs=epochs,
            batch_size=self.batch_size,
            max_gradient_norm=self.max_gradient_norm,
        )

    def _loss(self, batch: Sequence[Example], vectors: Tensor) -> Tensor:
        similarities = cosine_similarity(self.encoder.encode(batch), vectors)
        return cross_entropy(similarities, self._rows(batch), temperature=self.temperature)

    def _means(self) -> tuple[Tensor, Tensor]:
        """Mean embedding of each relation's exemplars, [n_relations, dim], and their numbers, [n_relations, 1].

        A relation without exemplars has the mean 0.
        """
        exemplars = list(self.memory)
        rows = self._rows(exemplars)
        sums = torch.zeros_like(self.vectors).index_add(0, rows, embed(self.encoder, exemplars))
        sizes = torch.bincount(rows, minlength=len(self.relations))[:, None]
        return sums / sizes.clamp(min=1), sizes

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return cosine_similarity(embed(self.encoder, examples), self.prototypes)

    def _state(self) -> State:
        tensors = {"vectors": self.vectors, "prototypes": self.prototypes}
        return State(tensors, {"memory": memory_to_json(self.memory)})

    def _restore(self, state: State) -> None:
        self.vectors = nn.Parameter(state.tensors["vectors"].to(self.encoder.device))
        self.prototypes = state.tensors["prototypes"].to(self.encoder.device)
        self.memory = memory_from_json(state.values["memory"])
