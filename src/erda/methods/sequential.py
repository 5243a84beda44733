"""SeqRun and Joint: the same softmax classifier, trained on the new task only or on everything so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from erda.encoders.base import embed
from erda.fields import Count, Number
from erda.learning.classifier import GrowingClassifier
from erda.learning.loop import descend
from erda.methods.base import LearningRate, Method, NotTiny, State
from erda.methods.saving import examples_from_json, examples_to_json
from erda.types import Example, Task


@dataclass(eq=False)
class SeqRun(Method):
    """Fine-tune on each new task and keep nothing: the lower bound."""

    _: KW_ONLY
    epochs: Number = 3  # as many passes over new data as ERDA makes
    batch_size: Count = 5
    learning_rate: LearningRate = 0.0  # 0: the encoder's own
    max_gradient_norm: NotTiny = 1.0

    name: ClassVar[str] = "seqrun"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.classifier = GrowingClassifier(self.encoder.dim).to(self.encoder.device)
        self.kept: tuple[Example, ...] = ()

    def _examples(self, task: Task) -> Sequence[Example]:
        """What to train on when `task` arrives."""
        return task.examples

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        self.classifier.grow(len(self.relations), generator)
        self.encoder.train()
        descend(
            self._examples(task),
            self._loss,
            [*self.encoder.trained_parameters(), *self.classifier.parameters()],
            learning_rate=self.learning_rate or self.encoder.learning_rate,
            generator=generator,
            epochs=self.epochs,
            batch_size=self.batch_size,
            max_gradient_norm=self.max_gradient_norm,
        )

    def _loss(self, batch: Sequence[Example]) -> Tensor:
        logits = self.classifier(self.encoder.encode(batch))
        return F.cross_entropy(logits, self._rows(batch))

    def _scores(self, examples: Sequence[Example]) -> Tensor:
        scores: Tensor = self.classifier(embed(self.encoder, examples))
        return scores

    def _state(self) -> State:
        tensors = {"weight": self.classifier.weight, "bias": self.classifier.bias}
        return State(tensors, {"kept": examples_to_json(self.kept)})

    def _restore(self, state: State) -> None:
        device = self.encoder.device
        self.classifier.put(state.tensors["weight"].to(device), state.tensors["bias"].to(device))
        self.kept = examples_from_json(state.values["kept"])


@dataclass(eq=False)
class Joint(SeqRun):
    """Keep every example and train on all of them at each task: the upper bound where data is balanced."""

    name: ClassVar[str] = "joint"

    def _examples(self, task: Task) -> Sequence[Example]:
        self.kept += task.examples
        return self.kept
