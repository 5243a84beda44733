"""IDLVQ-C: incremental deep learning vector quantisation (Chen and Lee 2021), one reference vector a relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from erda.encoders.base import embed
from erda.fields import Count, Number, Weight
from erda.learning.loop import descend
from erda.learning.losses import cross_entropy, pairwise_margin, squared_distance
from erda.learning.memory import Memory
from erda.methods.base import LearningRate, Method, NotTiny, State
from erda.methods.saving import memory_from_json, memory_to_json
from erda.types import Example, Task


@dataclass(eq=False)
class IdlvqC(Method):
    """The nearest reference vector; a new task may not move the exemplars, and references follow where it does."""

    _: KW_ONLY
    base_epochs: Number = 8  # on the first task: references need longer than the encoder (validation data)
    new_epochs: Number = 3  # on each later task and the memory
    batch_size: Count = 5
    learning_rate: LearningRate = 0.0  # 0: the encoder's own
    intra_weight: Weight = 0.1  # of the compactness of a relation
    forgetting_weight: Weight = 5.0  # of keeping exemplars where they were
    margin: Weight = 1.0  # between squared distances
    memory_size: Number = 1  # exemplars a relation; 0: nothing holds old references in place or calibrates them
    centred: bool = False  # references of the first task become means again after it; not in the publication
    max_gradient_norm: NotTiny = 1.0

    name: ClassVar[str] = "idlvq-c"

    def __post_init__(self) -> None:
        super().__post_init__()
        device = self.encoder.device
        self.memory = Memory()
        self.references = torch.zeros(0, self.encoder.dim, device=device)  # m_i of what was learned before
        self.scale = nn.Parameter(torch.ones((), device=device))  # gamma

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        new, old = list(task.examples), list(self.memory)
        is_first = not len(self.references)
        fresh = nn.Parameter(self._means(new, embed(self.encoder, new)))  # m_i of the new relations
        before = dict(zip(map(id, old), embed(self.encoder, old), strict=True))
        self.encoder.train()
        descend(
            new + old,
            lambda batch: self._base_loss(batch, fresh) if is_first else self._new_loss(batch, fresh, before),
            [*self.encoder.trained_parameters(), fresh, self.scale],
            learning_rate=self.learning_rate or self.encoder.learning_rate,
            generator=generator,
            epochs=self.base_epochs if is_first else self.new_epochs,
            batch_size=self.batch_size,
            max_gradient_norm=self.max_gradient_norm,
        )
        if old:  # calibration: a reference follows the drift of its exemplars
            drift = embed(self.encoder, old) - torch.stack(list(before.values()))
            self.references = self.references + self._means(old, drift)
        vectors = embed(self.encoder, new)
        learned = self._means(new, vectors) if self.centred and is_first else fresh.detach()
        self.references = torch.cat([self.references, learned])
        self.memory.select_all(new, vectors, n=self.memory_size)

    def _means(self, examples: Sequence[Example], vectors: Tensor) -> Tensor:
        """Mean vector of each relation among `examples`, in the order of learning: [n_relations, dim]."""
        rows = self._rows(examples)
        return torch.stack([vectors[rows == row].mean(dim=0) for row in rows.unique()])

    def _base_loss(self, batch: Sequence[Example], fresh: Tensor) -> Tensor:
        """Softmax over scaled distances, and compactness."""
        rows = self._rows(batch)
        distances = squared_distance(self.encoder.encode(batch), fresh)
        loss = cross_entropy(-distances / self.scale.square(), rows)
        return loss + self.intra_weight * distances.gather(1, rows[:, None]).mean()

    def _new_loss(self, batch: Sequence[Example], fresh: Tensor, before: dict[int, Tensor]) -> Tensor:
        """Margin and compactness of new examples; exemplars stay where they were `before`."""
        is_new = torch.tensor([id(example) not in before for example in batch], device=fresh.device)
        rows, vectors = self._rows(batch), self.encoder.encode(batch)
        loss = vectors.sum() * 0
        if is_new.any():
            rows = rows[is_new]
            distances = squared_distance(vectors[is_new], torch.cat([self.references, fresh]))
            loss = pairwise_margin(-distances, rows, margin=self.margin)
            loss = loss + self.intra_weight * distances.gather(1, rows[:, None]).mean()
        if not is_new.all():
            anchors = torch.stack([before[id(example)] for example in batch if id(example) in before])
            moved = (vectors[~is_new] - anchors).square().sum(dim=1)
            loss = loss + self.forgetting_weight * moved.mean()
        return loss

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return -squared_distance(embed(self.encoder, examples), self.references) / self.scale.square()

    def _state(self) -> State:
        tensors = {"references": self.references, "scale": self.scale}
        return State(tensors, {"memory": memory_to_json(self.memory)})

    def _restore(self, state: State) -> None:
        self.references = state.tensors["references"].to(self.encoder.device)
        self.scale = nn.Parameter(state.tensors["scale"].to(self.encoder.device))
        self.memory = memory_from_json(state.values["memory"])
