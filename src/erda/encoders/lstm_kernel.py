"""A bidirectional LSTM for the CPU that returns last states only, forward and backward compiled with Numba.

PyTorch's CPU LSTM spends most of a step of five sentences in overhead and in a slow `tanh`. This one fuses the gates,
runs each direction in its own thread, projects each distinct word once, and skips padding: sentences are sorted by
length, so that those still running at a step are the first rows. The arithmetic is that of `torch.nn.LSTM`
(gates i, f, g, o); tests hold the two against each other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

Array = np.ndarray
_f4 = np.float32
_LOW, _HIGH = _f4(-7.9), _f4(7.9)
# tanh(x) = x p(x^2) / q(x^2) on [-7.9, 7.9], the usual minimax fit; error below 3e-7 in single precision
_P0, _P1, _P2, _P3 = map(
    _f4, (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
)
_P4, _P5, _P6 = map(_f4, (1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03))
_Q0, _Q1, _Q2, _Q3 = map(_f4, (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03))
_HALF, _ONE = _f4(0.5), _f4(1.0)
_BLOCK = 64  # sentences that are predicted together

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
def _project(vectors: Array, w_in: Array, bias: Array) -> Array:
    """The part of the gates' inputs that a word decides: [n_words, width] -> [n_words, 4 * size]."""
    out = np.empty((vectors.shape[0], w_in.shape[0]), dtype=np.float32)
    for b in range(out.shape[0]):
        out[b] = bias
    _add_product(vectors, _transposed(w_in), out, out.shape[0])
    return out


@_jit
def _last_state(
    vectors: Array, rows: Array, active: Array, w_in: Array, w_rec: Array, bias: Array, hidden: Array
) -> None:
    """Last hidden states without keeping anything for a gradient; `hidden` is zero on entry: [n_sentences, size].

    A block of sentences goes through all its steps before the next one begins, so that its gates stay in the cache:
    that halves the time.
    """
    projected, recurrent = _project(vectors, w_in, bias), _transposed(w_rec)
    n_steps, n_sentences = rows.shape
    size = hidden.shape[1]
    cell = np.empty((_BLOCK, size), dtype=np.float32)
    gates = np.empty((_BLOCK, 4 * size), dtype=np.float32)
    for start in range(0, n_sentences, _BLOCK):
        own = hidden[start : start + _BLOCK]
        cell[:] = _f4(0.0)
        for t in range(n_steps):
            n = min(active[t] - start, _BLOCK)
            if n <= 0:
                break
            for b in range(n):
                gates[b] = projected[rows[t, start + b]]
            _add_product(own, recurrent, gates, n)
            for b in range(n):
                z, c, h = gates[b], cell[b], own[b]
                for j in range(size):
                    i = _HALF * _tanh(_HALF * z[j]) + _HALF
                    f = _HALF * _tanh(_HALF * z[size + j]) + _HALF
                    g = _tanh(z[2 * size + j])
                    o = _HALF * _tanh(_HALF * z[3 * size + j]) + _HALF
                    c[j] = f * c[j] + i * g
                    h[j] = o * _tanh(c[j])


@_jit
def _forward(
    vectors: Array,
    rows: Array,
    active: Array,
    w_in: Array,
    w_rec: Array,
    bias: Array,
    gates: Array,
    cells: Array,
    hiddens: Array,
) -> None:
    """One direction, kept for the gradient.

    gates: [n_steps, n_sentences, 4 * size], activated; cells, hiddens: [n_steps + 1, n_sentences, size], zero on entry.
    A sentence that has ended carries its last state on to the final step.
    """
    projected, recurrent = _project(vectors, w_in, bias), _transposed(w_rec)
    n_steps, n_sentences = rows.shape
    size = hiddens.shape[2]
    for t in range(n_steps):
        n = active[t]
        for b in range(n):
            gates[t, b] = projected[rows[t, b]]
        _add_product(hiddens[t], recurrent, gates[t], n)
        for b in range(n):
            z, c0, c1, h = gates[t, b], cells[t, b], cells[t + 1, b], hiddens[t + 1, b]
            for j in range(size):
                i = _HALF * _tanh(_HALF * z[j]) + _HALF
                f = _HALF * _tanh(_HALF * z[size + j]) + _HALF
                g = _tanh(z[2 * size + j])
                o = _HALF * _tanh(_HALF * z[3 * size + j]) + _HALF
                z[j] = i
                z[size + j] = f
                z[2 * size + j] = g
                z[3 * size + j] = o
                c1[j] = f * c0[j] + i * g
                h[j] = o * _tanh(c1[j])
        for b in range(n, n_sentences):
            hiddens[t + 1, b] = hiddens[t, b]


@_jit
def _backward(
    d_last: Array,
    vectors: Array,
    rows: Array,
    active: Array,
    w_rec: Array,
    gates: Array,
    cells: Array,
    hiddens: Array,
    d_weights: Array,
) -> None:
    """Gradient of one direction's weights from that of its last states.

    `d_weights` (zero on entry) is [width + size + 1, 4 * size]: input weights, recurrent weights and bias, transposed.
    """
    n_steps, n_sentences = rows.shape
    width, size = vectors.shape[1], d_last.shape[1]
    d_hidden = np.zeros((n_sentences, size), dtype=np.float32)
    d_cell = np.zeros((n_sentences, size), dtype=np.float32)
    n_tokens = active.sum()
    d_gates = np.empty((n_tokens, 4 * size), dtype=np.float32)
    inputs = np.empty((width + size + 1, n_tokens), dtype=np.float32)  # what the weights were multiplied with
    running, place = 0, 0
    for t in range(n_steps - 1, -1, -1):
        n = active[t]
        for b in range(running, n):  # sentences whose last token this is
            d_hidden[b] = d_last[b]
        running = n
        for b in range(n):
            z, dz, c0, c1 = gates[t, b], d_gates[place + b], cells[t, b], cells[t + 1, b]
            dh, dc = d_hidden[b], d_cell[b]
            for j in range(size):
                i, f, g, o = z[j], z[size + j], z[2 * size + j], z[3 * size + j]
                tc = _tanh(c1[j])
                dcell = dc[j] + dh[j] * o * (_ONE - tc * tc)
                dz[j] = dcell * g * i * (_ONE - i)
                dz[size + j] = dcell * c0[j] * f * (_ONE - f)
                dz[2 * size + j] = dcell * i * (_ONE - g * g)
                dz[3 * size + j] = dh[j] * tc * o * (_ONE - o)
                dc[j] = dcell * f
                dh[j] = _f4(0.0)
            word, before = vectors[rows[t, b]], hiddens[t, b]
            for j in range(width):
                inputs[j, place + b] = word[j]
            for j in range(size):
                inputs[width + j, place + b] = before[j]
            inputs[width + size, place + b] = _ONE
        _add_product(d_gates[place : place + n], w_rec, d_hidden, n)
        place += n
    _add_product(inputs, d_gates, d_weights, inputs.shape[0])


@dataclass(frozen=True, slots=True)
class PackedSentences:
    """Sentences as rows of word ids, longest first, one layout a direction."""

    rows: tuple[np.ndarray, np.ndarray]  # forward and reversed word ids, [n_steps, n_sentences] each
    active: np.ndarray  # sentences still running at each step, [n_steps]
    order: np.ndarray  # order[i]: where sentence i of the caller stands

    @classmethod
    def of(cls, sentences: list[list[int]]) -> PackedSentences:
        """Lay out sentences of word ids (none of them empty)."""
        lengths = np.array([len(sentence) for sentence in sentences])
        by_length = np.argsort(-lengths, kind="stable")
        n_steps = int(lengths.max())
        ahead = np.zeros((len(sentences), n_steps), dtype=np.int64)
        back = np.zeros_like(ahead)
        for place, i in enumerate(by_length):
            sentence = sentences[i]
            ahead[place, : len(sentence)] = sentence
            back[place, : len(sentence)] = sentence[::-1]
        active = (lengths[:, None] > np.arange(n_steps)).sum(axis=0)
        order = np.empty_like(by_length)
        order[by_length] = np.arange(len(sentences))
        return cls((np.ascontiguousarray(ahead.T), np.ascontiguousarray(back.T)), active, order)


@cache
def _second_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="erda-lstm")


os.register_at_fork(after_in_child=_second_thread.cache_clear)  # a forked process has only the thread that forked it


def _both(function: Any, ahead: tuple[Any, ...], back: tuple[Any, ...]) -> None:
    """Run one direction here and the other in a second thread (the kernels hold no lock)."""
    waiting = _second_thread().submit(function, *back)
    function(*ahead)
    waiting.result()


def last_states(vectors: Tensor, batch: PackedSentences, weights: list[Tensor]) -> Tensor:
    """Last states of both directions side by side, in the caller's order: [n_sentences, 2 * size].

    `vectors` [n_words, width] are word vectors (no gradient), `weights` the eight tensors of a one-layer bidirectional
    `nn.LSTM` in its own order. Differentiable in `weights` where gradients are on.
    """
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
        states: Tensor = _LastStates.apply(vectors, batch, *weights)
        return states
    size = weights[1].shape[1]
    hidden = [np.zeros((len(batch.order), size), dtype=np.float32) for _ in range(2)]
    calls = [(*_inputs(vectors, batch, weights, d), hidden[d]) for d in range(2)]
    _both(_last_state, calls[0], calls[1])
    return torch.from_numpy(np.concatenate(hidden, axis=1)[batch.order])


def _inputs(vectors: Tensor, batch: PackedSentences, weights: Sequence[Tensor], d: int) -> tuple[np.ndarray, ...]:
    """What both kernels read in direction `d`: vectors, rows, active, w_in, w_rec, bias."""
    w_in, w_rec, b_in, b_rec = (weight.detach().numpy() for weight in weights[4 * d : 4 * d + 4])
    return vectors.numpy(), batch.rows[d], batch.active, w_in, w_rec, b_in + b_rec


class _LastStates(torch.autograd.Function):
    """`last_states` with its gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, batch: PackedSentences, *weights: Tensor) -> Tensor:
        size = weights[1].shape[1]
        n_steps, n_sentences = batch.rows[0].shape
        calls = []
        for d in range(2):
            gates = np.empty((n_steps, n_sentences, 4 * size), dtype=np.float32)
            cells = np.zeros((n_steps + 1, n_sentences, size), dtype=np.float32)
            calls.append((*_inputs(vectors, batch, weights, d), gates, cells, np.zeros_like(cells)))
        _both(_forward, calls[0], calls[1])
        ctx.calls, ctx.order = calls, batch.order
        return torch.from_numpy(np.concatenate([call[-1][-1] for call in calls], axis=1)[batch.order])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d_states = np.empty(tuple(grads[0].shape), dtype=np.float32)
        d_states[ctx.order] = grads[0].numpy()
        size = d_states.shape[1] // 2
        calls = []
        for d, (vectors, rows, active, w_in, w_rec, _, gates, cells, hiddens) in enumerate(ctx.calls):
            d_last = np.ascontiguousarray(d_states[:, d * size : (d + 1) * size])
            d_weights = np.zeros((w_in.shape[1] + size + 1, 4 * size), dtype=np.float32)
            calls.append((d_last, vectors, rows, active, w_rec, gates, cells, hiddens, d_weights))
        _both(_backward, calls[0], calls[1])
        result: list[Tensor | None] = [None, None]
        for call in calls:
            found = torch.from_numpy(call[-1])
            width = found.shape[0] - size - 1
            result += [found[:width].t(), found[width:-1].t(), found[-1], found[-1].clone()]
        return tuple(result)
