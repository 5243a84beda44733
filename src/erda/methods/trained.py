"""Methods that learn by gradients: PyTorch tensors inside, NumPy at the border (`erda.methods.base`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from erda.encoders.trainable import TrainableEncoder, embed
from erda.errors import SettingsError
from erda.fields import Count
from erda.learning.gradient_loop import descend, seeded, threads
from erda.methods.base import Checkpoint, Method
from erda.types import Example

LearningRate = Annotated[float, Field(ge=0, lt=10)]  # 0: the encoder's own
NotTiny = Annotated[float, Field(ge=1e-6)]
Item = TypeVar("Item")


@dataclass(eq=False)
class Trained(Method):
    """A method that learns by gradients."""

    encoder: TrainableEncoder
    _: KW_ONLY
    batch_size: Count = 5
    learning_rate: LearningRate = 0.0  # 0: the encoder's own
    train_encoder: bool = True  # off: the encoder is frozen, and only the method's own parameters learn

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_frozen(self)
        self.encoder.eval()  # train mode only inside `_descend`
        if not self.train_encoder:
            self.encoder.requires_grad_(False)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint, bit for bit."""
        super().restore(checkpoint)
        self.encoder.eval()

    def _descend(
        self,
        items: Sequence[Item],
        loss: Callable[[list[Item]], Tensor],
        generator: torch.Generator,
        *,
        epochs: int,
        parameters: Sequence[nn.Parameter] = (),
        own_rate: float = 0.0,
    ) -> None:
        """Train the encoder's trainable parameters and `parameters`, which have `own_rate` (0: the encoder's rate)."""
        rate, encoders = self.learning_rate or self.encoder.learning_rate, self.encoder.trained_parameters()
        self.encoder.train(bool(encoders))
        try:
            descend(
                items,
                loss,
                [*encoders, *parameters],
                learning_rates=[rate] * len(encoders) + [own_rate or rate] * len(parameters),
                generator=generator,
                epochs=epochs,
                batch_size=self.batch_size,
            )
        finally:
            self.encoder.eval()

    # -- tensors instead of arrays -------------------------------------------------------------------------------------

    @contextmanager
    def _learning(self) -> Iterator[torch.Generator]:
        with seeded(self.seed, self.n_tasks) as generator, threads(self.encoder.n_threads):
            yield generator

    def _score_array(self, examples: Sequence[Example]) -> np.ndarray:
        with torch.no_grad():
            scores: np.ndarray = self._scores(examples).float().cpu().numpy()
        return scores

    def _to_array(self, row: Tensor) -> np.ndarray:
        array: np.ndarray = row.detach().cpu().numpy()
        return array

    def _from_array(self, array: np.ndarray) -> Tensor:
        return torch.tensor(array, device=self.encoder.device)

    def _vectors(self, examples: Sequence[Example]) -> Tensor:
        """Embed examples in the space where the method compares them, without gradients: [n_examples, dim]."""
        return embed(self.encoder, examples)

    def vectors(self, examples: Sequence[Example]) -> np.ndarray:
        """Embed examples as `_vectors` does."""
        return self._to_array(self._vectors(examples))

    def _targets(self, examples: Sequence[Example]) -> Tensor:
        """Return the row of each example's relation, on the encoder's device: [n_examples]."""
        return torch.from_numpy(self._target_rows(examples)).to(self.encoder.device)

    def _n_without(self, name: str) -> int:
        """Return the number of relations without a row of that name yet: the most recent ones."""
        return len(self.relations) - len(self.rows.get(name, {}))

    def _stack(self, name: str, new: Tensor | None = None) -> Tensor:
        """Stack the rows of that name, with `new` rows for relations that have none: [n_relations, ...]."""
        known = self.rows.get(name, {})
        rows = [known[relation] for relation in self.index if relation in known]
        return torch.stack([*rows, *(() if new is None else new)])

    def _keep(self, name: str, rows: Tensor) -> None:
        """Store one row per relation under a name: [n_relations, ...]."""
        self.rows[name] = dict(zip(self.index, rows.detach().unbind(), strict=True))


def refuse_frozen(method: Any) -> None:
    """Reject an encoder that cannot be trained."""
    if not isinstance(method.encoder, TrainableEncoder):
        raise SettingsError(
            f"method '{method.name}' trains its encoder, but encoder '{method.encoder.spec.name}' is frozen; use "
            "minilm or another encoder with engine 'torch'."
        )
