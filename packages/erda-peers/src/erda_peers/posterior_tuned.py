"""Posterior over an encoder that is fine-tuned once, on the first task, with a supervised contrastive loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from erda.encoders.trainable import TrainableEncoder
from erda.fields import Count, Fraction, Positive
from erda.learning.gradient_loop import descend, seeded
from erda.methods.base import Checkpoint
from erda.methods.posterior import Posterior
from erda.methods.trained import LearningRate, refuse_frozen
from erda.types import Example, Task
from erda_peers.contrastive_losses import supervised_contrastive
from erda_peers.posterior_transductive import PosteriorTransductive

KEPT_VECTORS = 20_000  # sentences whose vectors are cached while the encoder stays frozen


@dataclass(eq=False)
class PosteriorTuned(Posterior):
    """Posterior over an encoder that is trained on the first task and then frozen.

    A supervised contrastive loss pulls sentences of one relation together and pushes others away. It reads the last
    layer alone: where vectors average several layers, the others stay general. The final weights interpolate between
    those before and after training, against overfitting on ten relations.
    """

    encoder: TrainableEncoder
    _: KW_ONLY
    epochs: Count = 4
    batch_size: Count = 64
    temperature: Positive = 0.2
    part: Fraction = 0.5  # interpolation between the weights before (0) and after (1) training
    learning_rate: LearningRate = 3e-5  # 0: the encoder's own

    name: ClassVar[str] = "posterior-tuned"
    trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_frozen(self)
        self.encoder.eval()
        self._known: dict[Example, np.ndarray] = {}  # cached vectors under the current weights

    @contextmanager
    def _learning(self) -> Iterator[torch.Generator]:
        with seeded(self.seed, self.n_tasks) as generator:
            yield generator

    def taken_over(self) -> dict[str, np.ndarray]:
        """Return nothing: the background of the encoder does not fit trained weights."""
        return {}

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        if not self.n_tasks:
            self._tune(task.examples, generator)
        super()._learn(task, generator)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint, bit for bit."""
        self._known = {}
        super().restore(checkpoint)

    def vectors(self, examples: Sequence[Example]) -> np.ndarray:
        """Vectors of length 1, each sentence embedded once: [n_examples, dim]."""
        known = self._known
        new = [example for example in dict.fromkeys(examples) if example not in known]
        if not examples or len(known) + len(new) > KEPT_VECTORS:
            return super().vectors(examples)
        if new:
            known |= dict(zip(new, super().vectors(new), strict=True))
        return np.stack([known[example] for example in examples])

    def _tune(self, examples: Sequence[Example], generator: torch.Generator) -> None:
        self._known = {}
        before = {name: weights.clone() for name, weights in self.encoder.trained_tensors().items()}
        parameters = self.encoder.trained_parameters()
        self.encoder.train()
        try:
            descend(
                examples,
                self._loss,
                parameters,
                learning_rates=[self.learning_rate or self.encoder.learning_rate] * len(parameters),
                generator=generator,
                epochs=self.epochs,
                batch_size=self.batch_size,
            )
        finally:
            self.encoder.eval()
        after = self.encoder.trained_tensors()
        self.encoder.load_trained_state({name: start.lerp(after[name], self.part) for name, start in before.items()})

    def _loss(self, batch: list[Example]) -> Tensor:
        with self.encoder.last_layer():
            vectors = F.normalize(self.encoder.encode(batch), dim=-1)
        targets = torch.from_numpy(self._target_rows(batch)).to(vectors.device)
        others = ~torch.eye(len(batch), dtype=torch.bool, device=vectors.device)
        same = targets[:, None] == targets
        return supervised_contrastive(vectors @ vectors.t(), same, temperature=self.temperature, counted=others)


@dataclass(eq=False)
class PosteriorTunedTransductive(PosteriorTuned, PosteriorTransductive):
    """Posterior, tuned on the first task and fitted to examples and questions."""

    name: ClassVar[str] = "posterior-tuned-transductive"
