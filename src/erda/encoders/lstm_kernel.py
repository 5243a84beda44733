"""One direction of the LSTM of `lstm.py`, forward and backward, compiled with Numba.

The gates are fused, matrix products keep their sums in registers, and padding is skipped: sentences are sorted by
length, so that those still running at a step are the first rows. Everything compiled is in this file, since Numba
compiles a function again only where its own file has changed.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

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

# the largest tile of a product whose sums fit into the vector registers: numbers a vector, rows, vectors a row
if "+avx512f" in get_host_cpu_features():
    _LANES, _ROWS, _WIDE, _LESS_WIDE = 16, 5, 5, 4
else:
    _LANES, _ROWS, _WIDE, _LESS_WIDE = 8, 4, 3, 2

# sums are left in the order written, which keeps multiply and add fused; division needs no check for zero
_jit = numba.njit(fastmath={"contract", "nnan", "ninf", "nsz", "arcp"}, error_model="numpy", nogil=True, cache=True)


def _tile(n_vectors: int) -> Any:
    """Compiled: out[:n, :n_vectors * _LANES] = left[:n] @ right, for n up to `_ROWS`; every sum stays in a register.

    Numba has no vectors, and LLVM makes none of sums in a loop, so this one piece is written in LLVM's own terms.
    """

    @intrinsic
    def tile(_: Any, n: Any, left: Any, right: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            n_rows, *matrices = values
            vector, number = ir.VectorType(ir.FloatType(), _LANES), n_rows.type
            zero = ir.Constant(vector, [0.0] * _LANES)
            lane = ir.Constant(ir.IntType(32), 0)
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
            left, right, out = (
                context.make_array(kind)(context, builder, value)
                for kind, value in zip(signature.args[1:], matrices, strict=True)
            )

            def at(matrix: Any, row: Any, column: Any) -> Any:
                places = zip((row, column), cgutils.unpack_tuple(builder, matrix.strides), strict=True)
                return cgutils.pointer_add(builder, matrix.data, builder.add(*(builder.mul(*one) for one in places)))

            def vectors(matrix: Any, row: Any) -> list[Any]:
                columns = [ir.Constant(number, _LANES * v) for v in range(n_vectors)]
                return [builder.bitcast(at(matrix, row, column), vector.as_pointer()) for column in columns]

            for rows in range(1, _ROWS + 1):
                with builder.if_then(builder.icmp_signed("==", n_rows, ir.Constant(number, rows))):
                    places = [ir.Constant(number, row) for row in range(rows)]
                    sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(n_vectors)] for _ in places]
                    (inner,) = cgutils.unpack_tuple(builder, left.shape)[1:]
                    with cgutils.for_range(builder, inner, intp=number) as loop:
                        factors = [builder.load(place, align=4) for place in vectors(right, loop.index)]
                        for place, row in zip(places, sums, strict=True):
                            one = builder.insert_element(zero, builder.load(at(left, place, loop.index)), lane)
                            one = builder.shuffle_vector(one, zero, everywhere)
                            for factor, total in zip(factors, row, strict=True):
                                product = builder.fmul(one, factor, flags=["contract"])
                                added = builder.fadd(builder.load(total), product, flags=["contract"])
                                builder.store(added, total)
                    for place, row in zip(places, sums, strict=True):
                        for total, to in zip(row, vectors(out, place), strict=True):
                            builder.store(builder.load(total), to, align=4)
            return context.get_dummy_value()

        return types.none(types.intp, left, right, out), generate

    return tile


_wide_tile, _less_wide_tile, _narrow_tile = _tile(_WIDE), _tile(_LESS_WIDE), _tile(1)


@_jit
def _matrix(rows: int, columns: int) -> Array:
    """An empty matrix whose rows are whole vectors and start where a vector likes to; zeros behind `columns`."""
    width = columns + -columns % _LANES
    room = np.empty(rows * width + _LANES, dtype=np.float32)
    start = (-room.ctypes.data // 4) % _LANES
    matrix = room[start : start + rows * width].reshape((rows, width))
    matrix[:, columns:] = 0
    return matrix


@_jit
def _product(left: Array, right: Array, out: Array) -> None:
    """out = left @ right, both of `_matrix`; the last two tiles of a row may overlap."""
    width = right.shape[1]
    wide, less_wide = _WIDE * _LANES, _LESS_WIDE * _LANES
    step = wide if -width % wide <= -width % less_wide else less_wide
    if step > width:
        step = less_wide if less_wide <= width else _LANES
    for first in range(0, width, step):
        j = min(first, width - step)
        for b in range(0, len(left), _ROWS):
            n = min(len(left) - b, _ROWS)
            if step == wide:
                _wide_tile(n, left[b:], right[:, j:], out[b:, j:])
            elif step == less_wide:
                _less_wide_tile(n, left[b:], right[:, j:], out[b:, j:])
            else:
                _narrow_tile(n, left[b:], right[:, j:], out[b:, j:])


@intrinsic
def _own_loop(_: Any) -> Any:
    """Said in a compiled function: not to be inlined, and vectors as wide as there are.

    Inlined into a loop over rows, its accesses would seem to overlap, and LLVM would take one number after another.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.function.attributes.add("noinline")
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # which llvmlite does not know by name
        return context.get_dummy_value()

    return types.none(), generate


@_jit
def _fraction(x: Any) -> Any:
    """Numerator and denominator of tanh(x)."""
    x = min(max(x, _LOW), _HIGH)
    u = x * x
    p = (((((_P0 * u + _P1) * u + _P2) * u + _P3) * u + _P4) * u + _P5) * u + _P6
    q = ((_Q0 * u + _Q1) * u + _Q2) * u + _Q3
    return x * p, q


@_jit
def _tanh(x: Any) -> Any:
    p, q = _fraction(x)
    return p / q


@_jit
def _token(z: Array, word: Array, cell: Array, hidden: Array) -> None:
    """One token of a sentence: cell and hidden [size] become those after it.

    `z` [4 * size] holds the state's part of the gates, `word` the word's; on return `z` are the activated gates.
    """
    _own_loop()
    size = len(cell)
    for j in range(size):
        pi, qi = _fraction(_HALF * (z[j] + word[j]))
        pf, qf = _fraction(_HALF * (z[size + j] + word[size + j]))
        pg, qg = _fraction(z[2 * size + j] + word[2 * size + j])
        po, qo = _fraction(_HALF * (z[3 * size + j] + word[3 * size + j]))
        divisor = _ONE / ((qi * qf) * (qg * qo))  # one division for all four
        left, right = (qi * qf) * divisor, (qg * qo) * divisor
        i = _HALF * (pi * (qf * right)) + _HALF
        f = _HALF * (pf * (qi * right)) + _HALF
        g = pg * (qo * left)
        o = _HALF * (po * (qg * left)) + _HALF
        z[j] = i
        z[size + j] = f
        z[2 * size + j] = g
        z[3 * size + j] = o
        c = f * cell[j] + i * g
        cell[j] = c
        hidden[j] = o * _tanh(c)


@_jit
def _token_backward(z: Array, before: Array, d_hidden: Array, d_cell: Array, d_z: Array, d_bias: Array) -> None:
    """Gradient `d_z` [4 * size] of a token's gates, added to `d_bias`; `d_cell` [size] becomes that of `before`."""
    _own_loop()
    size = len(before)
    for j in range(size):
        i, f, g, o = z[j], z[size + j], z[2 * size + j], z[3 * size + j]
        tanh = _tanh(f * before[j] + i * g)
        d_c = d_cell[j] + d_hidden[j] * o * (_ONE - tanh * tanh)
        d_z[j] = d_c * g * i * (_ONE - i)
        d_z[size + j] = d_c * before[j] * f * (_ONE - f)
        d_z[2 * size + j] = d_c * i * (_ONE - g * g)
        d_z[3 * size + j] = d_hidden[j] * tanh * o * (_ONE - o)
        d_cell[j] = d_c * f
    for j in range(4 * size):
        d_bias[j] += d_z[j]


@_jit
def forward(
    inputs: Array,
    words: Array,
    active: Array,
    order: Array,
    w_in: Array,
    w_rec: Array,
    b_in: Array,
    b_rec: Array,
    states: Array,
    column: int,
    keep: bool,
) -> tuple[Array, Array, Array]:
    """One direction: its last states, and what the gradient needs where it is to be kept.

    inputs: [n_inputs, width], the vectors of words; words: [n_tokens], where in `inputs` each token's is; active and
    order: as in `PackedSentences`; states: [n_sentences, 2 * size], filled from `column` on in the caller's order.
    Kept are the activated gates [n_tokens, 4 * size], the vectors that went into them [n_tokens, width + size] and the
    cells before each token [n_tokens, size].
    """
    (n_gates, width), size, n_sentences = w_in.shape, w_rec.shape[1], len(order)
    turned_in, turned_rec = _matrix(width, n_gates), _matrix(size, n_gates)
    for j in range(n_gates):
        for k in range(width):
            turned_in[k, j] = w_in[j, k]
        for k in range(size):
            turned_rec[k, j] = w_rec[j, k]
    projected = _matrix(len(inputs), n_gates)
    _product(inputs, turned_in, projected)
    projected[:, :n_gates] += b_in + b_rec
    n_kept = len(words) if keep else n_sentences
    gates, entered, cells = _matrix(n_kept, n_gates), _matrix(n_kept, width + size), _matrix(n_kept, size)
    hidden, cell = np.zeros((n_sentences, size), dtype=np.float32), np.zeros((n_sentences, size), dtype=np.float32)
    start = 0
    for n in active:
        now = gates[start : start + n] if keep else gates[:n]
        if keep:
            for b in range(n):
                cells[start + b, :size] = cell[b]
                entered[start + b, :width] = inputs[words[start + b]]
                entered[start + b, width : width + size] = hidden[b]
        if start:
            _product(hidden[:n], turned_rec, now)
        else:
            now[:] = 0
        for b in range(n):
            _token(now[b], projected[words[start + b]], cell[b], hidden[b])
        start += n
    for b in range(n_sentences):
        states[order[b], column : column + size] = hidden[b]
    return gates, entered, cells


@_jit
def backward(
    d_states: Array,
    column: int,
    gates: Array,
    entered: Array,
    cells: Array,
    active: Array,
    order: Array,
    w_in: Array,
    w_rec: Array,
) -> tuple[Array, Array, Array, Array]:
    """Gradients of one direction's weights, in their order, from that of its last states and what `forward` kept."""
    (n_gates, width), size = w_in.shape, w_rec.shape[1]
    recurrent, d_hidden, d_cell = _matrix(n_gates, size), _matrix(len(order), size), _matrix(len(order), size)
    recurrent[:, :size] = w_rec
    d_cell[:] = 0
    d_gates, d_bias = _matrix(len(gates), n_gates), np.zeros(n_gates, dtype=np.float32)
    start, running = len(gates), 0
    for n in active[::-1]:
        start -= n
        for b in range(running, n):  # sentences whose last token this is
            d_hidden[b, :size] = d_states[order[b], column : column + size]
        running = n
        for b in range(n):
            row = start + b
            _token_backward(gates[row], cells[row, :size], d_hidden[b], d_cell[b], d_gates[row], d_bias)
        if start:
            _product(d_gates[start : start + n, :n_gates], recurrent, d_hidden[:n])
    d_weights = _matrix(n_gates, width + size)
    _product(d_gates[:, :n_gates].T, entered, d_weights)
    return d_weights[:, :width].copy(), d_weights[:, width : width + size].copy(), d_bias, d_bias.copy()


@_jit
def laid_out(lengths: Array, order: Array) -> tuple[Array, Array, Array]:
    """Both `places`, and `active`."""
    ends = np.cumsum(lengths)
    ahead, active = np.empty(ends[-1], dtype=np.int64), np.zeros(lengths[order[0]], dtype=np.int64)
    back = np.empty_like(ahead)
    i = 0
    for step in range(len(active)):
        for b in order:
            if lengths[b] <= step:
                break
            ahead[i] = ends[b] - lengths[b] + step
            back[i] = ends[b] - 1 - step
            active[step] += 1
            i += 1
    return ahead, back, active
