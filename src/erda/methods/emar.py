"""EMAR: episodic memory activation and reconsolidation (Han et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from erda.encoders.trainable import embed
from erda.fields import Number
from erda.learning.losses import cosine_similarity, cross_entropy
from erda.methods.trained import LearningRate, NotTiny, Trained
from erda.types import Example, ScoreKind, Task


@dataclass(eq=False)
class Emar(Trained):
    """Learned relation vectors with memory replay (activation); exemplars then learn to match their prototypes.

    Scores are cosines with the prototypes.
    """

    _: KW_ONLY
    new_epochs: Number = 1  # on the new task alone
    iterations: Number = 2  # of activation followed by reconsolidation
    activation_epochs: Number = 1  # on the new task and the memory
    reconsolidation_epochs: Number = 1  # on the memory, against prototypes
    temperature: NotTiny = 0.2  # of the softmax over cosine similarities, as in ERDA
    own_rate: LearningRate = 0.0  # learning rate of the relation vectors; 0: the encoder's
    memory_size: Number = 1  # exemplars per relation; 0: no reconsolidation, and prototypes are the learned vectors

    name: ClassVar[str] = "emar"
    score_kind: ClassVar[ScoreKind] = "cosine"

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        dim = self.encoder.dim
        drawn = torch.randn(self._n_without("vector"), dim, generator=generator) / math.sqrt(dim)
        vectors = nn.Parameter(self._stack("vector", drawn.to(self.encoder.device)))  # r_i, learned

        def practise(examples: Sequence[Example], targets: Tensor, epochs: int) -> None:
            """Minimise the cross-entropy between examples and `targets`, one vector per relation."""

            def loss(batch: Sequence[Example]) -> Tensor:
                similarities = cosine_similarity(self.encoder.encode(batch), targets)
                return cross_entropy(similarities, self._targets(batch), temperature=self.temperature)

            self._descend(examples, loss, generator, epochs=epochs, parameters=[vectors], own_rate=self.own_rate)

        practise(task.examples, vectors, self.new_epochs)
        self._remember(task.examples, self.memory_size)
        kept = {id(example) for example in self.kept}
        both = [*(example for example in task.examples if id(example) not in kept), *self.kept]
        for _ in range(self.iterations):
            practise(both, vectors, self.activation_epochs)
            practise(self.kept, self._means()[0], self.reconsolidation_epochs)
        means, sizes = self._means()
        self._keep("vector", vectors)
        self._keep("prototype", (vectors.detach() + sizes * means) / (1 + sizes))

    def _means(self) -> tuple[Tensor, Tensor]:
        """Return means of the exemplars' embeddings, [n_relations, dim], and their counts, [n_relations, 1].

        The mean of a relation without exemplars is 0.
        """
        rows = self._targets(self.kept)
        sums = torch.zeros(len(self.relations), self.encoder.dim, device=rows.device)
        sums = sums.index_add(0, rows, embed(self.encoder, self.kept))
        sizes = torch.bincount(rows, minlength=len(self.relations))[:, None]
        return sums / sizes.clamp(min=1), sizes

    def _prepare(self) -> None:
        self.prototypes = self._stack("prototype")

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return cosine_similarity(embed(self.encoder, examples), self.prototypes)
