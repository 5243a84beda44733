"""An encoder that reads word pieces: what sentences and texts become, whichever engine runs it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from erda.encoders.tokens import MarkedTokenizer, Pieces
from erda.encoders.trainable import TrainableEncoder
from erda.types import Example


class MarkedEncoder(TrainableEncoder):
    """Sentences with marks around their entities -> word pieces -> vectors; a subclass does the second half."""

    tokenizer: MarkedTokenizer

    @abstractmethod
    def encode_pieces(self, batch: Sequence[Pieces]) -> Tensor:
        """Vectors of sentences that are already word pieces: [n, dim]."""

    def encode(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of marked sentences: [n_examples, dim]."""
        return self.encode_pieces(self.tokenizer.encode(examples))

    def encode_blanked(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of marked sentences with a mask in the place of each entity's name: [n_examples, dim]."""
        return self.encode_pieces(self.tokenizer.encode(examples, blanked=[(True, True)] * len(examples)))

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Vectors of plain texts: [n_texts, dim]."""
        return self.encode_pieces(self.tokenizer.encode_texts(texts))
