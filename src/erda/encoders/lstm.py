"""A bidirectional LSTM for the CPU that returns last states only; `lstm_kernel.py` does its arithmetic.

PyTorch's CPU LSTM spends most of a step of five sentences in overhead and in a slow `tanh`. This one runs each
direction in its own thread, in one compiled call that does not hold the interpreter's lock. The arithmetic is that of
`torch.nn.LSTM` (gates i, f, g, o); tests hold the two against each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from erda.encoders.lstm_kernel import Array, backward, forward, laid_out

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PackedSentences:
    """Sentences of word ids, step by step: the first tokens of all, then the second ones, longest sentence first."""

    words: np.ndarray  # the ids of all tokens as they came, [n_tokens]
    places: tuple[np.ndarray, np.ndarray]  # where in `words` each token stands, read forwards and read backwards
    active: np.ndarray  # sentences that have a token at each step, [n_steps]
    order: np.ndarray  # order[b]: which of the caller's sentences is the b-th

    @classmethod
    def of(cls, sentences: Sequence[np.ndarray]) -> PackedSentences:
        """Lay out sentences of word ids (none of them empty)."""
        lengths = np.array([len(sentence) for sentence in sentences])
        order = np.argsort(-lengths, kind="stable")
        ahead, back, active = laid_out(lengths, order)
        return cls(np.concatenate(sentences), (ahead, back), active, order)


@cache
def _jobs() -> SimpleQueue[tuple[Callable[[int], Any], SimpleQueue[Any]]]:
    """Where the second thread takes its work: a function of the direction, and where to put what it returns."""
    jobs: SimpleQueue[tuple[Callable[[int], Any], SimpleQueue[Any]]] = SimpleQueue()

    def work() -> None:
        while True:
            function, answers = jobs.get()
            try:
                answers.put((function(1), None))
            except BaseException as error:
                answers.put((None, error))

    Thread(target=work, name="erda-lstm", daemon=True).start()
    return jobs


os.register_at_fork(after_in_child=_jobs.cache_clear)  # a forked process has only the thread that forked it


def _both(function: Callable[[int], T]) -> tuple[T, T]:
    """`function` of direction 0 here, and of direction 1 in a second thread (what takes long in it holds no lock)."""
    answers: SimpleQueue[Any] = SimpleQueue()
    _jobs().put((function, answers))
    first = function(0)
    second, error = answers.get()
    if error is not None:
        raise error
    return first, second


def last_states(vectors: Tensor, batch: PackedSentences, weights: Sequence[Tensor]) -> Tensor:
    """Last states of both directions side by side, in the caller's order: [n_sentences, 2 * size].

    `vectors` [n_words, width] are word vectors (no gradient), `weights` the eight tensors of a one-layer bidirectional
    `nn.LSTM` in its own order. Differentiable in `weights` where gradients are on.
    """
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
        states: Tensor = _LastStates.apply(vectors, batch, *weights)
        return states
    used, rows = np.unique(batch.words, return_inverse=True)  # each distinct word is projected once
    places = [rows[places] for places in batch.places]
    return torch.from_numpy(_run(vectors.numpy()[used], places, batch, _arrays(weights), keep=False)[0])


def _arrays(weights: Sequence[Tensor]) -> tuple[list[Array], list[Array]]:
    """The weights of both directions: w_in [4 * size, width], w_rec [4 * size, size], and two biases [4 * size]."""
    arrays = [weight.detach().numpy() for weight in weights]
    return arrays[:4], arrays[4:]


def _run(
    inputs: Array, words: Sequence[Array], batch: PackedSentences, weights: Sequence[list[Array]], *, keep: bool
) -> tuple[Array, Any]:
    """Last states in the caller's order, and what `forward` kept of each direction."""
    size = weights[0][1].shape[1]
    states = np.empty((len(batch.order), 2 * size), dtype=np.float32)
    kept = _both(lambda d: forward(inputs, words[d], batch.active, batch.order, *weights[d], states, d * size, keep))
    return states, kept


class _LastStates(torch.autograd.Function):
    """`last_states` with its gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, batch: PackedSentences, *weights: Tensor) -> Tensor:
        ctx.batch, ctx.weights = batch, _arrays(weights)
        states, ctx.kept = _run(vectors.numpy()[batch.words], batch.places, batch, ctx.weights, keep=True)
        return torch.from_numpy(states)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d_states, active, order = grads[0].contiguous().numpy(), ctx.batch.active, ctx.batch.order
        columns = 0, d_states.shape[1] // 2
        both = _both(lambda d: backward(d_states, columns[d], *ctx.kept[d], active, order, *ctx.weights[d][:2]))
        return None, None, *(torch.from_numpy(one) for direction in both for one in direction)
