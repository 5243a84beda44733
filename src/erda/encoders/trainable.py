"""Encoders with PyTorch parameters, for methods that learn by gradient descent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from erda.encoders.contract import Encoder
from erda.errors import ModelError
from erda.types import Example

BAR_AFTER = 3.0  # seconds of embedding before a progress bar appears


class TrainableEncoder(nn.Module, Encoder):
    """An encoder whose `encode` and `encode_texts` are differentiable and share their parameters (siamese).

    Constructors leave the encoder in eval mode, in which it is thread-safe. `trained_parameters` may be empty.
    """

    learning_rate: float  # default for methods that do not set one
    batch_size: int = 256  # sentences per batch without gradients

    @abstractmethod
    def encode(self, examples: Sequence[Example]) -> Tensor:
        """Encode one batch of marked sentences: [n_examples, dim]."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode one batch of plain texts: [n_texts, dim]."""

    def encode_blanked(self, examples: Sequence[Example]) -> Tensor:
        """Encode one batch with both entity names masked, if the encoder has a mask token: [n_examples, dim]."""
        return self.encode(examples)

    @contextmanager
    def last_layer(self) -> Iterator[None]:
        """Read the last layer alone within the context, where the encoder averages several."""
        yield

    def embed(self, examples: Sequence[Example], *, blanked: bool = False, batch_size: int | None = None) -> np.ndarray:
        """Embed marked sentences without gradients: [n_examples, dim] float32."""
        vectors: np.ndarray = embed(self, examples, batch_size=batch_size, blanked=blanked).cpu().numpy()
        return vectors

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def trained_parameters(self) -> list[nn.Parameter]:
        """Trainable parameters, for an optimiser."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def trained_tensors(self) -> dict[str, Tensor]:
        """Trainable parameters by name; the rest can be rebuilt from `spec`."""
        return {name: parameter.detach() for name, parameter in self.named_parameters() if parameter.requires_grad}

    def trained_state(self) -> dict[str, np.ndarray]:
        """Copy the trainable parameters."""
        return {name: tensor.cpu().numpy().copy() for name, tensor in self.trained_tensors().items()}

    def load_trained_state(self, state: Mapping[str, np.ndarray | Tensor]) -> None:
        """Restore parameters copied by `trained_state`."""
        own = {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}
        wrong = [name for name in own if name not in state or tuple(state[name].shape) != tuple(own[name].shape)]
        if wrong or len(state) != len(own):
            raise ModelError(
                f"Saved weights do not fit encoder '{self.spec.name}': {', '.join(wrong) or 'extra weights'}."
            )
        with torch.no_grad():
            for name, parameter in own.items():
                new = state[name]
                parameter.copy_(new if isinstance(new, Tensor) else torch.tensor(new))


def embed(
    encoder: TrainableEncoder, examples: Sequence[Example], *, batch_size: int | None = None, blanked: bool = False
) -> Tensor:
    """Embed sentences without gradients in batches of similar length: [n_examples, dim], in the order of `examples`.

    `blanked` masks the entity names. On a terminal, a progress bar appears after `BAR_AFTER` seconds.
    """
    from tqdm import tqdm

    if not examples:
        return torch.zeros(0, encoder.dim, device=encoder.device)
    batch_size = batch_size or encoder.batch_size
    was_training = encoder.training
    if was_training:
        encoder.eval()
    encode = encoder.encode_blanked if blanked else encoder.encode
    order = sorted(range(len(examples)), key=lambda i: len(examples[i].tokens))
    vectors = torch.empty(len(examples), encoder.dim, device=encoder.device)
    try:
        with torch.no_grad():
            starts = range(0, len(order), batch_size)
            for start in tqdm(starts, desc="sentences", unit="batch", leave=False, delay=BAR_AFTER, disable=None):
                rows = order[start : start + batch_size]
                vectors[rows] = encode([examples[i] for i in rows]).float()
    finally:
        if was_training:
            encoder.train()
    return vectors
