"""BiLSTM over frozen word vectors, as in the paper: last states of both directions, without entity marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from erda.encoders.glove import WordVectors, load_vectors
from erda.encoders.settings import BiLstmSettings
from erda.encoders.tokens import cut
from erda.encoders.trainable import TrainableEncoder
from erda.files import user_path
from erda.types import EncoderSpec, Example

DEFAULTS = BiLstmSettings()
MAX_TOKENS = 512
KEPT_SENTENCES = 50_000  # with cached word ids: about 20 MB


class BiLstmEncoder(TrainableEncoder):
    """One bidirectional LSTM for sentences and relation names; dim = 2 * hidden_size.

    `lstm.py` runs training steps on the CPU, `nn.LSTM` everything else: same parameters, same vectors up to rounding.
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
        self.batch_size = 512  # the gates of a batch fit into the processor's cache
        self.n_threads = 1  # `lstm.py` starts its own second thread
        self.spec = EncoderSpec("bilstm", settings.model_dump(), vectors.fingerprint)
        self._known_ids: dict[tuple[str, ...], Tensor] = {}
        generator = torch.Generator().manual_seed(seed)
        bound = 1 / math.sqrt(hidden_size)
        with torch.no_grad():
            for name, parameter in self.lstm.named_parameters():
                if name.startswith("weight"):
                    parameter.uniform_(-bound, bound, generator=generator)
                else:
                    parameter.zero_()
                if name.startswith("bias_ih"):  # an open forget gate (i, f, g, o) learns in a few hundred steps
                    parameter[hidden_size : 2 * hidden_size] = 1.0
        self.eval()

    @classmethod
    def build(cls, settings: BiLstmSettings, *, seed: int = 0, device: str = "cpu") -> BiLstmEncoder:
        """Load the word vectors named in the settings and build the BiLSTM."""
        encoder = cls(load_vectors(user_path(settings.vectors) if settings.vectors else None), settings, seed=seed)
        encoder = encoder.to(torch.device(device))
        with torch.enable_grad():  # compile or load the kernel now, not during the first task
            encoder.encode_texts(["a", "b"]).sum().backward()
        encoder.zero_grad()
        return encoder

    def encode(self, examples: Sequence[Example]) -> Tensor:
        """Encode one batch of sentences: [n_examples, dim]."""
        read = _span if self.spec.settings["reads"] == "span" else _shortened
        return self._run([self._ids(read(example)) for example in examples])

    def _ids(self, tokens: tuple[str, ...]) -> Tensor:
        """Word ids of a sentence, cached: test sets recur after every task, exemplars in every epoch."""
        found = self._known_ids.get(tokens)
        if found is None:
            if len(self._known_ids) >= KEPT_SENTENCES:
                self._known_ids.clear()
            found = self._known_ids[tokens] = torch.tensor(self.words.ids(tokens))
        return found

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode one batch of relation names or descriptions: [n_texts, dim]."""
        return self._run([torch.tensor(self.words.ids(text.split()) or [0]) for text in texts])

    def _run(self, sentences: list[Tensor]) -> Tensor:
        if self.vectors.device.type == "cpu" and torch.is_grad_enabled():
            from erda.encoders.lstm import last_states

            states = last_states(self.lstm, self.vectors, sentences)
        else:
            words = [self.vectors[ids.to(self.device)] for ids in sentences]
            _, (last, _) = self.lstm(pack_sequence(words, enforce_sorted=False))
            states = torch.cat([last[0], last[1]], dim=1)
        dropped: Tensor = self.dropout(states)
        return dropped


def _span(example: Example) -> tuple[str, ...]:
    """Tokens from the first entity to the end of the second, at most `MAX_TOKENS`."""
    spans = example.head.span, example.tail.span
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    return _shortened(example) if end - start > MAX_TOKENS else example.tokens[start:end]


def _shortened(example: Example) -> tuple[str, ...]:
    """Tokens of an example; beyond `MAX_TOKENS`, only those nearest to its entities."""
    tokens = example.tokens
    if len(tokens) <= MAX_TOKENS:
        return tokens
    first, second = sorted((example.head.span, example.tail.span))
    bounds = [0, first.start, first.end, second.start, second.end, len(tokens)]
    parts = cut([list(range(start, end)) for start, end in pairwise(bounds)], MAX_TOKENS)
    return tuple(tokens[i] for part in parts for i in part)
