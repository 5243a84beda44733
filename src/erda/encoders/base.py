"""What an encoder promises: sentences with two marked entities, and relation names, become vectors of one space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from erda.encoders.settings import EncoderSpec
from erda.errors import ModelError
from erda.types import Example

BAR_AFTER = 3.0  # seconds of embedding


class Encoder(nn.Module, ABC):
    """Text -> vectors. `encode` and `encode_texts` are differentiable and share their parameters (siamese).

    It is built in eval mode, and in eval mode several threads may use it at once. `trained_parameters` may be none.
    """

    spec: EncoderSpec
    dim: int
    learning_rate: float  # what its trained parameters like where a method does not say otherwise
    batch_size: int = 256  # sentences a batch where no gradient is kept
    n_threads: int | None = None  # of PyTorch's while a method works; None leaves them as they are

    @abstractmethod
    def encode(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of sentences, one batch: [n_examples, dim]."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Vectors of plain texts (relation names, descriptions), one batch: [n_texts, dim]."""

    def encode_blanked(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of sentences whose entities have no name, a mask where the encoder knows one: [n_examples, dim]."""
        return self.encode(examples)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def trained_parameters(self) -> list[nn.Parameter]:
        """What learning changes, for an optimiser."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def trained_state(self) -> dict[str, Tensor]:
        """The parameters that learning changes; the rest comes back from `spec`."""
        return {name: parameter.detach() for name, parameter in self.named_parameters() if parameter.requires_grad}

    def load_trained_state(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights that `trained_state` gave."""
        own = {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}
        wrong = [name for name in own if name not in state or state[name].shape != own[name].shape]
        if wrong or len(state) != len(own):
            raise ModelError(
                f"Saved weights do not fit encoder '{self.spec.name}': {', '.join(wrong) or 'extra weights'}."
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(state[name])


def embed(
    encoder: Encoder, examples: Sequence[Example], *, batch_size: int | None = None, blanked: bool = False
) -> Tensor:
    """Vectors of many sentences without gradients, in batches of like length: [n_examples, dim], in the order given.

    `blanked` hides the names of their entities. Where it takes a while and there is a terminal, a bar shows the way.
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
