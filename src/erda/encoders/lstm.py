"""Training step of a bidirectional LSTM on the CPU, compiled with Numba: last states only, one thread per direction.

`torch.nn.LSTM` takes 3.5 times as long on a training step of seven sentences (docs/decisions.md). This module
computes the same function (gates in the order i, f, g, o); the tests compare states and gradients. Numba calls SciPy's
BLAS for matrix products.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

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
