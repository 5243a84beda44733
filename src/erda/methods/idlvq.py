"""IDLVQ-C: incremental deep learning vector quantisation (Chen and Lee 2021), one reference vector per relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erda.encoders.trainable import embed
from erda.fields import Number, Weight
from erda.learning.losses import cross_entropy, pairwise_margin, squared_distance
from erda.methods.trained import LearningRate, Trained
from erda.types import Example, ScoreKind, Task


@dataclass(eq=False)
class IdlvqC(Trained):
    """The nearest reference vector; a loss holds exemplars in place, and references follow their drift.

    Scores are negative squared distances over the learned scale, -d^2 / gamma^2.
    """

    _: KW_ONLY
    base_epochs: Number = 8  # on the first task; references need more epochs than the encoder (validation data)
    new_epochs: Number = 3  # on each later task and the memory
    intra_weight: Weight = 0.1  # of the compactness loss
    forgetting_weight: Weight = 5.0  # of the loss that holds exemplars in place
    margin: Weight = 1.0  # between squared distances
    own_rate: LearningRate = 0.0  # learning rate of references and scale; 0: the encoder's
    memory_size: Number = 1  # exemplars per relation; 0: old references are neither held in place nor calibrated
    unit_vectors: bool = False  # scale vectors to length 1, so that margin and weights suit every encoder

    name: ClassVar[str] = "idlvq-c"
    score_kind: ClassVar[ScoreKind] = "negative distance"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shared["scale"] = torch.ones((), device=self.encoder.device)  # gamma

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        new, old, is_first = list(task.examples), list(self.kept), not self.rows.get("reference")
        means, taught = self._means(new, self._vectors(new))
        references = self._stack("reference", means[len(means) - self._n_without("reference") :])
        fresh = nn.Parameter(references[taught])  # m_i of the task's relations; new references start as means
        scale = nn.Parameter(self.shared["scale"].clone())
        before = dict(zip(map(id, old), self._vectors(old), strict=True))

        def loss(batch: Sequence[Example]) -> Tensor:
            if is_first:
                return self._base_loss(batch, fresh, scale)
            return self._new_loss(batch, references.index_copy(0, taught, fresh), before)

        epochs = self.base_epochs if is_first else self.new_epochs
        self._descend(new + old, loss, generator, epochs=epochs, parameters=[fresh, scale], own_rate=self.own_rate)
        if old:  # calibration: a reference follows the drift of its exemplars
            drift, rows = self._means(old, self._vectors(old) - torch.stack(list(before.values())))
            references = references.index_add(0, rows, drift)
        vectors = self._vectors(new)
        self._keep("reference", references.index_copy(0, taught, fresh.detach()))
        self.shared["scale"] = scale.detach()
        self._remember(new, self.memory_size, self._to_array(vectors))

    def _vectors(self, examples: Sequence[Example]) -> Tensor:
        """Embed examples without gradients: [n, dim]."""
        return self._scaled(embed(self.encoder, examples))

    def _scaled(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors, dim=-1) if self.unit_vectors else vectors

    def _means(self, examples: Sequence[Example], vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean vector of each relation in `examples`, in the order of learning, [n, dim], and rows [n]."""
        rows = self._targets(examples)
        found = rows.unique()
        return torch.stack([vectors[rows == row].mean(dim=0) for row in found]), found

    def _base_loss(self, batch: Sequence[Example], references: Tensor, scale: Tensor) -> Tensor:
        """Cross-entropy over scaled distances, plus compactness."""
        rows = self._targets(batch)
        distances = squared_distance(self._scaled(self.encoder.encode(batch)), references)
        loss = cross_entropy(-distances / scale.square(), rows)
        return loss + self.intra_weight * distances.gather(1, rows[:, None]).mean()

    def _new_loss(self, batch: Sequence[Example], references: Tensor, before: Mapping[int, Tensor]) -> Tensor:
        """Margin and compactness of new examples, plus the drift of exemplars from their vectors `before`."""
        is_new = torch.tensor([id(example) not in before for example in batch], device=references.device)
        rows, vectors = self._targets(batch), self._scaled(self.encoder.encode(batch))
        loss = vectors.sum() * 0
        if is_new.any():
            rows = rows[is_new]
            distances = squared_distance(vectors[is_new], references)
            loss = pairwise_margin(-distances, rows, margin=self.margin)
            loss = loss + self.intra_weight * distances.gather(1, rows[:, None]).mean()
        if not is_new.all():
            anchors = torch.stack([before[id(example)] for example in batch if id(example) in before])
            moved = (vectors[~is_new] - anchors).square().sum(dim=1)
            loss = loss + self.forgetting_weight * moved.mean()
        return loss

    def _prepare(self) -> None:
        self.references = self._stack("reference")

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return -squared_distance(self._vectors(examples), self.references) / self.shared["scale"].square()
