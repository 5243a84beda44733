"""A bidirectional LSTM for the CPU that returns last states only, forward and backward compiled with Numba.

PyTorch's CPU LSTM spends most of a step of five sentences in overhead and in a slow `tanh`. This one fuses the gates,
runs each direction in its own thread, and skips padding: sentences are sorted by length, so that those still running
at a step are the first rows. Large matrix products are PyTorch's; where no gradient is kept, one of them serves a step
of all sentences, and each distinct word is projected once. The arithmetic is that of `torch.nn.LSTM` (gates i, f, g,
o); tests hold the two against each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from torch import Tensor

Array = np.ndarray
T = TypeVar("T")
_f4 = np.float32
_LOW, _HIGH = _f4(-7.9), _f4(7.9)
# tanh(x) = x p(x^2) / q(x^2) on [-7.9, 7.9], the usual minimax fit; error below 3e-7 in single precision
_P0, _P1, _P2, _P3 = map(
    _f4, (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
)
_P4, _P5, _P6 = map(_f4, (1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03))
_Q0, _Q1, _Q2, _Q3 = map(_f4, (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03))
_HALF, _ONE = _f4(0.5), _f4(1.0)

# sums are left in the order written, which keeps multiply and add fused; division needs no check for zero
_jit = numba.njit(fastmath={"contract", "nnan", "ninf", "nsz", "arcp"}, error_model="numpy", nogil=True, cache=True)


@_jit
def _tanh(x: Any) -> Any:
    x = min(max(x, _LOW), _HIGH)
    u = x * x
    p = (((((_P0 * u + _P1) * u + _P2) * u + _P3) * u + _P4) * u + _P5) * u + _P6
    q = ((_Q0 * u + _Q1) * u + _Q2) * u + _Q3
    return x * p / q


@_jit
def _add_product(left: Array, right: Array, out: Array, n: int) -> None:
    """out[:n] += left[:n] @ right, four rows and four inner steps at a time."""
    inner, width = right.shape
    whole_rows, whole = n - n % 4, inner - inner % 4
    for b in range(0, whole_rows, 4):
        o0, o1, o2, o3 = out[b], out[b + 1], out[b + 2], out[b + 3]
        for k in range(0, whole, 4):
            r0, r1, r2, r3 = right[k], right[k + 1], right[k + 2], right[k + 3]
            a00, a01, a02, a03 = left[b, k], left[b, k + 1], left[b, k + 2], left[b, k + 3]
            a10, a11, a12, a13 = left[b + 1, k], left[b + 1, k + 1], left[b + 1, k + 2], left[b + 1, k + 3]
            a20, a21, a22, a23 = left[b + 2, k], left[b + 2, k + 1], left[b + 2, k + 2], left[b + 2, k + 3]
            a30, a31, a32, a33 = left[b + 3, k], left[b + 3, k + 1], left[b + 3, k + 2], left[b + 3, k + 3]
            for j in range(width):
                w0, w1, w2, w3 = r0[j], r1[j], r2[j], r3[j]
                o0[j] = (((o0[j] + a00 * w0) + a01 * w1) + a02 * w2) + a03 * w3
                o1[j] = (((o1[j] + a10 * w0) + a11 * w1) + a12 * w2) + a13 * w3
                o2[j] = (((o2[j] + a20 * w0) + a21 * w1) + a22 * w2) + a23 * w3
                o3[j] = (((o3[j] + a30 * w0) + a31 * w1) + a32 * w2) + a33 * w3
        for k in range(whole, inner):
            r0, a00, a10, a20, a30 = right[k], left[b, k], left[b + 1, k], left[b + 2, k], left[b + 3, k]
            for j in range(width):
                o0[j] += a00 * r0[j]
                o1[j] += a10 * r0[j]
                o2[j] += a20 * r0[j]
                o3[j] += a30 * r0[j]
    for b in range(whole_rows, n):
        o0 = out[b]
        for k in range(0, whole, 4):
            r0, r1, r2, r3 = right[k], right[k + 1], right[k + 2], right[k + 3]
            a00, a01, a02, a03 = left[b, k], left[b, k + 1], left[b, k + 2], left[b, k + 3]
            for j in range(width):
                o0[j] = (((o0[j] + a00 * r0[j]) + a01 * r1[j]) + a02 * r2[j]) + a03 * r3[j]
        for k in range(whole, inner):
            r0, a00 = right[k], left[b, k]
            for j in range(width):
                o0[j] += a00 * r0[j]


@_jit
def _transposed(matrix: Array) -> Array:
    rows, columns = matrix.shape
    out = np.empty((columns, rows), dtype=np.float32)
    for i in range(rows):
        for j in range(columns):
            out[j, i] = matrix[i, j]
    return out


@_jit
def _step(gates: Array, projected: Array, words: Array, cell: Array, hidden: Array) -> None:
    """One token of the first `len(words)` sentences, where nothing is kept for a gradient.

    `gates` [n, 4 * size] holds the states' part of the gates, `projected` [n_words, 4 * size] that of each word.
    """
    size = cell.shape[1]
    for b in range(len(words)):
        z, p, c, h = gates[b], projected[words[b]], cell[b], hidden[b]
        for j in range(size):
            i = _HALF * _tanh(_HALF * (z[j] + p[j])) + _HALF
            f = _HALF * _tanh(_HALF * (z[size + j] + p[size + j])) + _HALF
            g = _tanh(z[2 * size + j] + p[2 * size + j])
            o = _HALF * _tanh(_HALF * (z[3 * size + j] + p[3 * size + j])) + _HALF
            c[j] = f * c[j] + i * g
            h[j] = o * _tanh(c[j])


@_jit
def _forward(gates: Array, active: Array, w_rec: Array, hiddens: Array, cells: Array, last: Array) -> None:
    """One direction, kept for the gradient.

    gates: [n_tokens, 4 * size], on entry the words' part, on return activated; hiddens, cells: [n_tokens, size], the
    states before each token, zero on entry; last: [n_sentences, size], the states after the last one.
    """
    recurrent = _transposed(w_rec)
    size = last.shape[1]
    end_cell = np.empty(size, dtype=np.float32)
    start, n_steps = 0, len(active)
    for t in range(n_steps):
        n = active[t]
        following = start + n
        n_following = active[t + 1] if t + 1 < n_steps else 0
        if t:
            _add_product(hiddens[start:following], recurrent, gates[start:following], n)
        for b in range(n):
            z, c0, c1, h = gates[start + b], cells[start + b], end_cell, last[b]
            if b < n_following:
                c1, h = cells[following + b], hiddens[following + b]
            for j in range(size):
                i = _HALF * _tanh(_HALF * z[j]) + _HALF
                f = _HALF * _tanh(_HALF * z[size + j]) + _HALF
                g = _tanh(z[2 * size + j])
                o = _HALF * _tanh(_HALF * z[3 * size + j]) + _HALF
                z[j] = i
                z[size + j] = f
                z[2 * size + j] = g
                z[3 * size + j] = o
                c = f * c0[j] + i * g
                c1[j] = c
                h[j] = o * _tanh(c)
        start = following


@_jit
def _backward(d_last: Array, gates: Array, active: Array, w_rec: Array, cells: Array, d_gates: Array) -> None:
    """Gradient of one direction's gates before their activation, [n_tokens, 4 * size], from that of its last states."""
    d_hidden = np.empty_like(d_last)
    d_cell = np.zeros_like(d_last)
    size = d_last.shape[1]
    start, running = len(gates), 0
    for t in range(len(active) - 1, -1, -1):
        n = active[t]
        start -= n
        for b in range(running, n):  # sentences whose last token this is
            d_hidden[b] = d_last[b]
        running = n
        for b in range(n):
            z, dz, c0, dh, dc = gates[start + b], d_gates[start + b], cells[start + b], d_hidden[b], d_cell[b]
            for j in range(size):
                i, f, g, o = z[j], z[size + j], z[2 * size + j], z[3 * size + j]
                tc = _tanh(f * c0[j] + i * g)
                dcell = dc[j] + dh[j] * o * (_ONE - tc * tc)
                dz[j] = dcell * g * i * (_ONE - i)
                dz[size + j] = dcell * c0[j] * f * (_ONE - f)
                dz[2 * size + j] = dcell * i * (_ONE - g * g)
                dz[3 * size + j] = dh[j] * tc * o * (_ONE - o)
                dc[j] = dcell * f
                dh[j] = _f4(0.0)
        if t:
            _add_product(d_gates[start : start + n], w_rec, d_hidden, n)


@dataclass(frozen=True, slots=True)
class PackedSentences:
    """Sentences of word ids, step by step: the first tokens of all, then the second ones, longest sentence first."""

    words: np.ndarray  # the ids of all tokens as they came, [n_tokens]
    places: tuple[np.ndarray, np.ndarray]  # where in `words` each token stands, read forwards and read backwards
    active: np.ndarray  # sentences that have a token at each step, [n_steps]
    order: np.ndarray  # order[i]: where sentence i of the caller stands

    @classmethod
    def of(cls, sentences: Sequence[np.ndarray]) -> PackedSentences:
        """Lay out sentences of word ids (none of them empty)."""
        lengths = np.array([len(sentence) for sentence in sentences])
        by_length = np.argsort(-lengths, kind="stable")
        order = np.empty_like(by_length)
        order[by_length] = np.arange(len(sentences))
        ends = np.cumsum(lengths)[by_length]
        lengths = lengths[by_length]
        active = np.searchsorted(-lengths, -np.arange(lengths[0]))
        step = np.repeat(np.arange(len(active)), active)
        sentence = np.arange(len(step)) - (np.cumsum(active) - active)[step]
        places = (ends - lengths)[sentence] + step, (ends - 1)[sentence] - step
        return cls(np.concatenate(sentences), places, active, order)


@cache
def _second_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="erda-lstm")


os.register_at_fork(after_in_child=_second_thread.cache_clear)  # a forked process has only the thread that forked it


def _both(function: Callable[[int], T]) -> tuple[T, T]:
    """`function` of direction 0 here, and of direction 1 in a second thread (what takes long in it holds no lock)."""
    waiting = _second_thread().submit(function, 1)
    return function(0), waiting.result()


def last_states(vectors: Tensor, batch: PackedSentences, weights: Sequence[Tensor]) -> Tensor:
    """Last states of both directions side by side, in the caller's order: [n_sentences, 2 * size].

    `vectors` [n_words, width] are word vectors (no gradient), `weights` the eight tensors of a one-layer bidirectional
    `nn.LSTM` in its own order. Differentiable in `weights` where gradients are on.
    """
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
        states: Tensor = _LastStates.apply(vectors, batch, *weights)
        return states
    used, rows = np.unique(batch.words, return_inverse=True)
    vectors = vectors[torch.from_numpy(used)]

    def direction(d: int) -> Tensor:
        w_in, w_rec, bias = _weights(weights, d)
        words = rows[batch.places[d]]
        projected = torch.addmm(bias, vectors, w_in.t()).numpy()
        hidden, cell = torch.zeros(2, len(batch.order), w_rec.shape[1])
        gates = torch.zeros(len(hidden), len(w_rec))
        start = 0
        for n in batch.active.tolist():
            if start:
                torch.mm(hidden[:n], w_rec.t(), out=gates[:n])
            _step(gates.numpy(), projected, words[start : start + n], cell.numpy(), hidden.numpy())
            start += n
        return hidden

    return torch.cat(_both(direction), dim=1)[torch.from_numpy(batch.order)]


def _weights(weights: Sequence[Tensor], d: int) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of direction `d`: w_in [4 * size, width], w_rec [4 * size, size] and bias [4 * size]."""
    w_in, w_rec, b_in, b_rec = (weight.detach() for weight in weights[4 * d : 4 * d + 4])
    return w_in, w_rec, b_in + b_rec


class _LastStates(torch.autograd.Function):
    """`last_states` with its gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, batch: PackedSentences, *weights: Tensor) -> Tensor:
        def direction(d: int) -> tuple[Tensor, ...]:
            w_in, w_rec, bias = _weights(weights, d)
            words = vectors[torch.from_numpy(batch.words[batch.places[d]])]
            gates = torch.addmm(bias, words, w_in.t())
            hiddens, cells = torch.zeros(2, len(words), w_rec.shape[1])
            last = torch.empty(len(batch.order), w_rec.shape[1])
            _forward(*(one.numpy() for one in (gates, active, w_rec, hiddens, cells, last)))
            return words, gates, w_rec, hiddens, cells, last

        active = torch.from_numpy(batch.active)
        ctx.kept, ctx.active, ctx.order = _both(direction), active, torch.from_numpy(batch.order)
        return torch.cat([kept[-1] for kept in ctx.kept], dim=1)[ctx.order]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        def direction(d: int) -> tuple[Tensor, ...]:
            words, gates, w_rec, hiddens, cells, last = ctx.kept[d]
            d_last, d_gates = torch.empty_like(last), torch.empty_like(gates)
            d_last[ctx.order] = grads[0].chunk(2, dim=1)[d]
            _backward(*(one.numpy() for one in (d_last, gates, ctx.active, w_rec, cells, d_gates)))
            d_bias = d_gates.sum(dim=0)
            return d_gates.t() @ words, d_gates.t() @ hiddens, d_bias, d_bias.clone()

        ahead, back = _both(direction)
        return None, None, *ahead, *back
