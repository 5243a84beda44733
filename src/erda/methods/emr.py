"""EMR, episodic memory replay (Wang et al. 2019): SeqRun with replay of one exemplar per earlier relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch

from erda.fields import Number
from erda.methods.sequential import SeqRun
from erda.types import Example, Task


@dataclass(eq=False)
class Emr(SeqRun):
    """The growing softmax classifier of SeqRun, trained on the new task and the memory. Scores are logits."""

    _: KW_ONLY
    memory_size: Number = 1  # exemplars per relation

    name: ClassVar[str] = "emr"

    def _examples(self, task: Task) -> Sequence[Example]:
        return (*task.examples, *self.kept)

    def _learn(self, task: Task, generator: torch.Generator) -> None:
        super()._learn(task, generator)
        self._remember(task.examples, self.memory_size)
