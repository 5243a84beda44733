"""BiLSTM over frozen word vectors, as in the paper: last states of both directions, no entity information."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from erda.encoders.base import Encoder
from erda.encoders.glove import WordVectors, load_vectors
from erda.encoders.settings import BiLstmSettings, EncoderSpec
from erda.encoders.tokens import cut
from erda.files import user_path
from erda.types import Example

DEFAULTS = BiLstmSettings()
MAX_TOKENS = 512
KEPT_SENTENCES = 50_000  # whose word ids are remembered: about 20 MB


class BiLstmEncoder(Encoder):
    """Sentences and relation names through one bidirectional LSTM; dim = 2 * hidden_size.

    On the CPU a compiled kernel does the work (`lstm.py`), elsewhere PyTorch's own LSTM; both hold the same
    parameters and give the same vectors.
    """

    def __init__(self, vectors: WordVectors, settings: BiLstmSettings = DEFAULTS, *, seed: int = 0) -> None:
        super().__init__()
        hidden_size = settings.hidden_size
        self.words = vectors
        self.vectors: Tensor
        self.register_buffer("vectors", vectors.vectors, persistent=False)
        self.lstm = nn.LSTM(vectors.dim, hidden_size, bidirectional=True)
        self.dropout = nn.Dropout(settings.dropout)
        self.dim = 2 * hidden_size
        self.learning_rate = 1e-3
        self.batch_size = 512  # whose gates stay in the cache
        self.n_threads = 1  # the kernel has two of its own; more of PyTorch's would only get in their way
        self.spec = EncoderSpec("bilstm", settings.model_dump(), vectors.fingerprint)
        self._compiled = find_spec("numba") is not None
        self._known_ids: dict[tuple[str, ...], np.ndarray] = {}
        generator = torch.Generator().manual_seed(seed)
        bound = 1 / math.sqrt(hidden_size)
        with torch.no_grad():
            for name, parameter in self.lstm.named_parameters():
                if name.startswith("weight"):
                    parameter.uniform_(-bound, bound, generator=generator)
                else:
                    parameter.zero_()
                if name.startswith("bias_ih"):  # gates i, f, g, o: the forget gate starts open, so that a few
                    parameter[hidden_size : 2 * hidden_size] = 1.0  # hundred steps are enough to remember a sentence

        self.eval()

    @classmethod
    def build(cls, settings: BiLstmSettings, *, seed: int = 0, device: str = "cpu") -> BiLstmEncoder:
        """The BiLSTM over the word vectors that the settings name, ready to work."""
        encoder = cls(load_vectors(user_path(settings.vectors) if settings.vectors else None), settings, seed=seed)
        encoder = encoder.to(torch.device(device))
        with torch.enable_grad():  # compile or load the kernels now, not in the middle of the first task
            encoder.encode_texts(["a", "b"]).sum().backward()
        encoder.zero_grad()
        with torch.no_grad():
            encoder.encode_texts(["a"])
        return encoder

    def encode(self, examples: Sequence[Example]) -> Tensor:
        """Vectors of sentences: [n_examples, dim]."""
        read = _span if self.spec.settings["reads"] == "span" else _within_reach
        return self._run([self._ids(read(example)) for example in examples])

    def _ids(self, tokens: tuple[str, ...]) -> np.ndarray:
        """Word ids of a sentence, looked up once: tests are asked after every task, memories read in every epoch."""
        found = self._known_ids.get(tokens)
        if found is None:
            if len(self._known_ids) >= KEPT_SENTENCES:
                self._known_ids.clear()
            found = self._known_ids[tokens] = np.array(self.words.ids(tokens))
        return found

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Vectors of relation names or descriptions: [n_texts, dim]."""
        return self._run([np.array(self.words.ids(text.split()) or [0]) for text in texts])

    def _run(self, sentences: list[np.ndarray]) -> Tensor:
        if self._compiled and self.vectors.device.type == "cpu":
            from erda.encoders.lstm import PackedSentences, last_states

            weights = [weight for direction in self.lstm.all_weights for weight in direction]
            states = last_states(self.vectors, PackedSentences.of(sentences), weights)
        else:
            packed = pack_sequence([self.vectors[torch.from_numpy(ids)] for ids in sentences], enforce_sorted=False)
            _, (last, _) = self.lstm(packed)
            states = torch.cat([last[0], last[1]], dim=1)
        dropped: Tensor = self.dropout(states)
        return dropped


def _span(example: Example) -> tuple[str, ...]:
    """The tokens from the first entity to the end of the second, at most `MAX_TOKENS`."""
    spans = example.head.span, example.tail.span
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    return _within_reach(example) if end - start > MAX_TOKENS else example.tokens[start:end]


def _within_reach(example: Example) -> tuple[str, ...]:
    """The tokens of an example; of one longer than `MAX_TOKENS`, those nearest to its entities."""
    tokens = example.tokens
    if len(tokens) <= MAX_TOKENS:
        return tokens
    first, second = sorted((example.head.span, example.tail.span))
    bounds = [0, first.start, first.end, second.start, second.end, len(tokens)]
    parts = cut([list(range(start, end)) for start, end in pairwise(bounds)], MAX_TOKENS)
    return tuple(tokens[i] for part in parts for i in part)
