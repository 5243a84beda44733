"""SeqRun, Joint and EMR: one softmax classifier, trained on the new task, on all tasks so far, or with a memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erda.encoders.trainable import embed
from erda.fields import Number
from erda.methods.trained import LearningRate, Trained
from erda.types import Example, ScoreKind, Task


@dataclass(eq=False)
class SeqRun(Trained):
    """Fine-tune on each new task and keep nothing: the lower bound. Scores are logits."""

    _: KW_ONLY
    epochs: Number = 3  # as many passes over new data as in ERDA
    own_rate: LearningRate = 0.0  # learning rate of the classifier; 0: the encoder's

    name: ClassVar[str] = "seqrun"
    score_kind: ClassVar[ScoreKind] = "logit"

    def _examples(self, task: Task) -> Sequence[Example]:
        """Return the training examples for a new task."""
        return task.examples

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        dim = self.encoder.dim
        drawn = torch.empty(self._n_without("weight"), dim + 1)  # new relations, initialised like `nn.Linear`
        drawn = drawn.uniform_(-1 / math.sqrt(dim), 1 / math.sqrt(dim), generator=generator).to(self.encoder.device)
        weight = nn.Parameter(self._stack("weight", drawn[:, :dim]))
        bias = nn.Parameter(self._stack("bias", drawn[:, dim]))

        def loss(batch: Sequence[Example]) -> Tensor:
            return F.cross_entropy(F.linear(self.encoder.encode(batch), weight, bias), self._targets(batch))

        examples, own = self._examples(task), [weight, bias]
        self._descend(examples, loss, generator, epochs=self.epochs, parameters=own, own_rate=self.own_rate)
        self._keep("weight", weight)
        self._keep("bias", bias)

    def _prepare(self) -> None:
        self.weight, self.bias = self._stack("weight"), self._stack("bias")

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        return F.linear(embed(self.encoder, examples), self.weight, self.bias)


@dataclass(eq=False)
class Joint(SeqRun):
    """Keep every example and train on all of them at each task, so no data is forgotten. Scores are logits."""

    name: ClassVar[str] = "joint"

    def _examples(self, task: Task) -> Sequence[Example]:
        self.kept += task.examples
        return self.kept


@dataclass(eq=False)
class Emr(SeqRun):
    """Episodic memory replay (Wang et al. 2019): train on the new task and one exemplar per earlier relation.

    Scores are logits.
    """

    _: KW_ONLY
    memory_size: Number = 1  # exemplars per relation

    name: ClassVar[str] = "emr"

    def _examples(self, task: Task) -> Sequence[Example]:
        return (*task.examples, *self.kept)

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        super()._learn(task, generator)
        self._remember(task.examples, self.memory_size)
