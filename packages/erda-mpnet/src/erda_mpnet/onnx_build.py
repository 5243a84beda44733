"""Build the files of an ONNX encoder from PyTorch weights (extra `train`).

The graph takes the piece ids of one sentence and returns the states at the start marks of one pair of entities, or of
several (mode `levitated`: every pair has four marks after the words, in mode `starts` two; `owners` says whose they
are, and a mark reads the words and the marks of its own pair). It is written operator by operator from the weights,
with ONNX Runtime's own operators where their CPU kernels are faster. Each run takes one sentence without padding.

In int8, the weights of linear layers have one scale per output. Inputs are quantised in one of two ways:

- rows: at run time, each row is divided by its largest absolute value, and the output is multiplied by it. Queries,
  keys and values are computed in 32 bits.
- columns, for encoders that come with `ranges`: each column is divided by a power of its largest absolute value in
  sentences of the embedded dataset, and the weights are multiplied by it, in queries, keys and values too. A few
  columns are ten times as large as the others, in all sentences. Inputs after the activation, whose outliers differ,
  keep one scale per row.

In mode `levitated` no row depends on another one. Weights use 7 bits: on x86 without VNNI, the sum of two products (255
x 127 x 2) would saturate at 16 bits. Word vectors are stored in 8 bits with one scale per word, everything else in half
precision, which ONNX Runtime widens when it loads the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from erda.data.catalogue import load_dataset
from erda.encoders import TransformerSettings, device_kind
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import UnlabelledFile, save_unlabelled
from erda.encoders.frozen import FrozenCache
from erda.encoders.layers import LayeredModel
from erda.encoders.onnx_encoder import (
    GRAPH,
    TOKENIZER,
    VERSION,
    AboutEncoder,
    OnnxEncoder,
    PackedEncoder,
    crc32_of,
    packaged_folder,
)
from erda.encoders.tokens import LEVITATED, graph_inputs, open_session
from erda.encoders.transformer import LEARNING_RATES, TransformerEncoder
from erda.encoders.weights import ModelFolder, find_model
from erda.errors import ErdaError, ModelError, SettingsError
from erda.files import locked, read_arrays
from erda.types import EncoderSpec

BUILD_SECONDS = 300  # timeout for another process that builds the same encoder
OPEN = Path(__file__).with_name("open")  # weights of `open-mpnet`, and statistics of their vectors
RANGES = "ranges.npz"  # `input_ranges` of these weights
OPSET, IR_VERSION = 20, 9  # of 2023: ONNX Runtime 1.18 and later read them
RUNTIME = "com.microsoft"  # the domain of ONNX Runtime's own operators
LARGEST = 63  # largest int8 weight: 255 x 63 x 2 fits into 16 bits
LARGEST_WORD = 127  # largest entry of an int8 word vector
TINY = np.array(1e-9, dtype=np.float32)
DEPTH = np.array(0.17, dtype=np.float32)  # of the activation, whose smallest value is -0.16997
N_SAMPLE = 100  # sentences that the ranges of inputs are measured on
COLUMN_POWER = 0.6  # of a column's largest value, that it is divided by
ROOM = 1.05  # for values beyond those of the sample
HIDDEN = -60  # added to hidden scores of attention; below -87, exponentials are denormal numbers, which are slow


def open_onnx(
    folder: ModelFolder,
    settings: TransformerSettings,
    *,
    weights: TrainedWeights | None,
    device: str,
    cache: FrozenCache | None = None,
) -> OnnxEncoder:
    """Build an encoder for engine `onnx` or `onnx-int8` from its weights."""
    if device_kind(device) != "cpu":
        raise SettingsError(f"engine '{settings.engine}': it runs on a CPU, not on '{device}'; use engine 'torch'.")
    packed = pack_encoder(folder, settings, weights=weights)
    filled = {"learning_rate": settings.learning_rate or LEARNING_RATES["markers"]}
    fingerprint = weights.fingerprint if weights else folder.fingerprint
    spec = EncoderSpec(folder.name, settings.model_dump() | filled, fingerprint)
    return OnnxEncoder(packed.about, lambda: packed, spec, cache=cache)


def pack_encoder(
    folder: ModelFolder,
    settings: TransformerSettings,
    *,
    weights: TrainedWeights | None,
    made_from: str = "",
    ranges: np.ndarray | None = None,
) -> PackedEncoder:
    """Build the files of an encoder from its weights; with `input_ranges`, with one scale per column."""
    engine = f"engine '{settings.engine}': it runs"
    if settings.mode == "paper" or settings.trained_layers or settings.projection or settings.precision != "fp32":
        expected = "expected mode 'markers', 'levitated' or 'starts', trained_layers 0, projection 0, precision 'fp32'"
        raise SettingsError(f"{engine} frozen encoders: {expected}.")
    encoder = TransformerEncoder(folder, settings, weights=weights)
    config, tokenizer = encoder.layers.model.config, encoder.tokenizer
    if not encoder.layers.splits or config.hidden_act != "gelu":
        shape = f"'{config.model_type}' ({config.hidden_act})"
        raise SettingsError(f"{engine} BERT, RoBERTa and MPNet, not {shape}; use engine 'torch'.")
    levitated, int8 = settings.mode in LEVITATED, settings.engine != "onnx"
    graph = _Graph(levitated, int8, ranges).build(encoder.layers, tokenizer.limit)
    files = {GRAPH: graph, TOKENIZER: tokenizer.to_json().encode()}
    about = AboutEncoder(
        version=VERSION,
        engine=settings.engine,
        model=folder.name,
        dim=encoder.dim,
        max_pieces=tokenizer.limit,
        vocab_size=tokenizer.vocab_size,
        special=tokenizer.special,
        mode=settings.mode,
        pooled_layers=weights.pooled_layers if weights else 1,
        trained_on=weights.trained_on if weights else (),
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        crc32=crc32_of(files),
        made_from=made_from,
    )
    return PackedEncoder(about, files[GRAPH], files[TOKENIZER])


def pack_weights(weights: TrainedWeights, *, ranges: np.ndarray | None = None) -> PackedEncoder:
    """Build the int8 files of an encoder from the weights of `erda corpus train`; `ranges` as in `pack_encoder`."""
    settings = TransformerSettings(mode=weights.mode, trained_layers=0, engine="onnx-int8")
    folder, made_from = find_model(weights.base.name), weights.fingerprint
    return pack_encoder(folder, settings, weights=weights, made_from=made_from, ranges=ranges)


def get_packaged(name: str, *, say: Callable[[str], None]) -> Path:
    """Build the files of `open-mpnet` in the cache folder unless they are there; return their folder."""
    folder, weights = packaged_folder(name), TrainedWeights.load(OPEN)
    with locked(folder, busy=f"another process builds encoder '{name}'", error=ModelError, wait=BUILD_SECONDS):
        try:
            about = PackedEncoder.read(folder).about
            found = about.made_from if UnlabelledFile(folder, about.fingerprint).read() else ""
        except ErdaError:  # missing, damaged, or of another version of erda
            found = ""
        if found != weights.fingerprint:
            say(f"Building the files of encoder '{name}' in {folder}. This takes a minute, once.")
            pairs = UnlabelledFile(OPEN, weights.fingerprint).read()
            if pairs is None:
                raise ModelError(f"{OPEN}: no statistics of encoder '{name}'; reinstall erda-mpnet.")
            packed = pack_weights(
                weights, **read_arrays(OPEN / RANGES, error=ModelError, remedy="Reinstall erda-mpnet.")
            )
            save_unlabelled(folder, pairs, packed.about.fingerprint)
            packed.write(folder)
    say(f"{name}: complete ({folder}).")
    return folder


# -- the graph -------------------------------------------------------------------------------------------------------


def input_ranges(encoder: TransformerEncoder) -> np.ndarray:
    """Smallest and largest inputs of each layer that quantises columns, in the order of the graph: [n, 2, in]."""
    plain = _Graph(levitated=True, ranges=())
    model = onnx.load_model_from_string(plain.build(encoder.layers, encoder.tokenizer.limit))
    model.graph.output.extend(_value(name, TensorProto.FLOAT, f"rows {name}", "in") for name in plain.columns)
    session, found = open_session(model.SerializeToString()), list[np.ndarray]()
    for pieces in encoder.tokenizer.encode(load_dataset("atlas").train[:N_SAMPLE]):
        inputs = session.run(plain.columns, graph_inputs([pieces]))
        found.append(np.stack([[one.min(axis=0), one.max(axis=0)] for one in inputs]))
    return np.stack([np.min(found, axis=0)[:, 0], np.max(found, axis=0)[:, 1]], axis=1) * np.float32(ROOM)


class _Graph:
    """Nodes and constants; each method adds some and returns the name of their output.

    `columns` are the inputs of the layers that quantise columns, `ranges` their ranges; None if no layer does.
    """

    def __init__(self, levitated: bool, int8: bool = False, ranges: Iterable[np.ndarray] | None = None) -> None:
        self.int8, self.levitated = int8, levitated
        self.has_columns, self.ranges = ranges is not None, iter(() if ranges is None else ranges)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.columns: list[str] = []

    def build(self, layers: LayeredModel, max_pieces: int) -> bytes:
        """Serialise the graph of a model that `splits`: `ids` [length] and `marks` [2] -> `vector` [2 x hidden].

        Levitated: with `positions` and `owners` [length] and `marks` [2 x n_pairs] -> [n_pairs, 2 x hidden].
        """
        embeddings, width = layers.model.embeddings, layers.hidden_size
        words = _array(embeddings.word_embeddings.weight)
        if layers.marks is not None:
            words = np.concatenate([words, _array(layers.marks)])
        length = self._add("Shape", "ids")
        rows = self._words(words)
        places = self._floats(_array(_position_rows(layers, max_pieces)))
        at = ["positions"] if self.levitated else [self._ints(0), length]
        rows = self._add("Add", rows, self._add("Gather" if self.levitated else "Slice", places, *at))
        norm = embeddings.LayerNorm
        states = self._add("LayerNormalization", rows, *self._scale(norm), epsilon=norm.eps)
        bias = self._position_bias(layers, max_pieces, length)
        pooled = []
        for number, layer in enumerate(layers.layers, start=1):
            if number - 1 > layers.n_layers - layers.pooled_layers:
                pooled.append(self._add("Gather", states, "marks"))
            states = self._layer(layers, layer, states, bias, last=number == layers.n_layers)
        if pooled:
            states = self._add("Mean", *(self._unit(one, 2 * width) for one in (*pooled, states)))
        self._add("Reshape", states, self._ints(-1, 2 * width) if self.levitated else self._ints(-1))
        self.nodes[-1].output[0] = "vector"
        names = ("positions", "owners") if self.levitated else ()
        more = [_value(name, TensorProto.INT64, "length") for name in names]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [_value("ids", TensorProto.INT32, "length"), _value("marks", TensorProto.INT64, "marks"), *more],
            [_value("vector", TensorProto.FLOAT, *(["pairs"] if self.levitated else []), 2 * width)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIME, 1)]
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
        return content

    def _words(self, words: np.ndarray) -> str:
        """Look up word vectors: [length, hidden]."""
        if not self.int8:
            return self._add("Gather", self._constant(words), "ids")
        scale = np.maximum(np.abs(words).max(axis=1, keepdims=True), TINY) / LARGEST_WORD
        whole = self._constant(np.rint(words / scale).astype(np.int8))
        rows = self._add("Cast", self._add("Gather", whole, "ids"), to=TensorProto.FLOAT)
        return self._add("Mul", rows, self._add("Gather", self._constant(scale), "ids"))

    def _floats(self, value: np.ndarray) -> str:
        """A 32-bit constant, stored in 16 bits in an int8 graph."""
        if not self.int8:
            return self._constant(value)
        return self._add("Cast", self._constant(value.astype(np.float16)), to=TensorProto.FLOAT)

    def _layer(self, layers: LayeredModel, layer: Any, states: str, bias: str, *, last: bool) -> str:
        """One layer: [length, hidden] -> [length, hidden]; the last layer only at the two marks: [2, hidden]."""
        attention, query, key, value = _attention(layers, layer)
        project = self._columns if self.has_columns else self._exact
        linear = self._columns if self.has_columns else self._rows
        if last:
            here = self._add("Gather", states, "marks")
            bias = bias and self._add("Gather", bias, "marks", axis=1)
            parts = [*project(here, query), *project(states, key, value)]
        else:
            here, parts = states, project(states, query, key, value)
        n_heads = attention.num_attention_heads
        mixed = self._attend(parts, bias, (n_heads, layers.hidden_size // n_heads))
        block = layer.attention
        output, norm = (block.attn.o, block.LayerNorm) if layers.mpnet else (block.output.dense, block.output.LayerNorm)
        attended = self._skip(norm, *linear(mixed, output), here)
        inner = self._add("Gelu", *linear(attended, layer.intermediate.dense), domain=RUNTIME)
        return self._skip(layer.output.LayerNorm, *self._rows(inner, layer.output.dense, activated=True), attended)

    def _attend(self, parts: list[str], bias: str, shape: tuple[int, int]) -> str:
        """Attention with queries, keys and values [n, width], width = heads x size = `shape`: [n, width].

        Faster than ONNX Runtime's fused operator with a bias.
        """
        heads, axes = self._ints(-1, *shape), ([1, 0, 2], [1, 2, 0], [1, 0, 2])  # keys are [heads, size, n]
        queries, keys, values = (
            self._add("Transpose", self._add("Reshape", one, heads), perm=to)
            for one, to in zip(parts, axes, strict=True)
        )
        scale = self._constant(np.array(shape[1] ** -0.5, np.float32))
        scores = self._add("MatMul", self._add("Mul", queries, scale), keys)
        weights = self._add("Softmax", self._add("Add", scores, bias) if bias else scores, axis=-1)
        mixed = self._add("Transpose", self._add("MatMul", weights, values), perm=[1, 0, 2])
        return self._add("Reshape", mixed, self._ints(-1, shape[0] * shape[1]))

    def _unit(self, states: str, width: int) -> str:
        """Scale the states of each pair to length 1: [2 x n_pairs, hidden] -> [n_pairs, width]."""
        pairs = self._add("Reshape", states, self._ints(-1, width))
        length = self._add("ReduceL2", pairs, self._ints(1), keepdims=1)
        return self._add("Div", pairs, self._add("Max", length, self._constant(TINY)))

    def _exact(self, states: str, *linears: nn.Linear) -> list[str]:
        """Linear layers with the same input, in 32 bits: [n, in] -> [n, out] each."""
        weights = ((self._floats(_array(one.weight)), self._constant(_array(one.bias))) for one in linears)
        return [self._add("Gemm", states, *both, transB=1) for both in weights]

    def _columns(self, states: str, *linears: nn.Linear) -> list[str]:
        """Linear layers with the same input, its columns quantised: [n, in] -> [n, out] each."""
        if not self.int8:
            self.columns.append(states)
            return self._exact(states, *linears)
        low, high = next(self.ranges)
        powers = np.maximum(np.maximum(-low, high), TINY) ** COLUMN_POWER  # rounded, so the same on every machine
        column_scale = powers.astype(np.float16).astype(np.float32)
        low, high = (low / column_scale).min(), (high / column_scale).max()
        step = np.float32((high - low) / 254)
        fixed = self._constant(np.array(step)), self._constant(np.array(np.rint(-low / step), np.uint8))
        states = self._add("QuantizeLinear", self._add("Mul", states, self._constant(1 / column_scale)), *fixed)
        return [self._product(states, *fixed, _array(one.weight) * column_scale, _array(one.bias)) for one in linears]

    def _rows(self, states: str, linear: nn.Linear, *, activated: bool = False) -> list[str]:
        """A linear layer, with rows quantised: [n, in] -> [n, out]; `activated` says that the states come from GELU."""
        if not self.int8:
            return self._exact(states, linear)
        weight, bias = _array(linear.weight), _array(linear.bias)
        sizes, floor = (states, DEPTH) if activated else (self._add("Abs", states), TINY)
        largest = self._add("ReduceMax", sizes, self._ints(1), keepdims=1)
        largest = self._add("Max", largest, self._constant(floor))
        states = self._add("Div", states, largest)
        if self.levitated:
            step, middle = self._constant(np.array(1 / 127, np.float32)), self._constant(np.array(128, np.uint8))
            product = self._product(self._add("QuantizeLinear", states, step, middle), step, middle, weight)
        else:
            product = self._add("DynamicQuantizeMatMul", states, *self._whole(weight), domain=RUNTIME)
        return [self._add("Add", self._add("Mul", product, largest), self._constant(bias))]

    def _product(self, states: str, step: str, middle: str, weight: np.ndarray, bias: np.ndarray | None = None) -> str:
        """Product of quantised states and weights, plus a bias: [n, in] -> [n, out]."""
        whole, scales = self._whole(weight)
        last = () if bias is None else ("", self._constant(bias))  # "" stands for the zero point of the weights
        return self._add("MatMulIntegerToFloat", states, whole, step, scales, middle, *last, domain=RUNTIME)

    def _whole(self, weight: np.ndarray) -> tuple[str, str]:
        """Weights as whole numbers [in, out], and the scale of each output."""
        scale = np.maximum(np.abs(weight).max(axis=1), TINY) / LARGEST
        return self._constant(np.rint(weight / scale[:, None]).astype(np.int8).T), self._constant(scale)

    def _skip(self, norm: nn.LayerNorm, *states: str) -> str:
        """A residual connection and the normalisation after it, which the fused operator computes slowly on a CPU."""
        total = self._add("Add", *states)
        return self._add("LayerNormalization", total, *self._scale(norm), epsilon=norm.eps)

    def _scale(self, norm: nn.LayerNorm) -> tuple[str, str]:
        return self._constant(_array(norm.weight)), self._constant(_array(norm.bias))

    def _position_bias(self, layers: LayeredModel, max_pieces: int, length: str) -> str:
        """What is added to attention, [heads or 1, length, length]: MPNet's bias by distance, and the mask of marks.

        Empty for other models with the marks in the sentence.
        """
        if self.levitated:
            axes = [self._add("Unsqueeze", "owners", self._ints(axis)) for axis in (0, 1)]
            reads = self._add("Or", self._add("Equal", axes[0], self._ints(0)), self._add("Equal", *axes))
            mask = self._add("Where", reads, *(self._constant(np.array(one, np.float32)) for one in (0, HIDDEN)))
            mask = self._add("Unsqueeze", mask, self._ints(0))
        if not layers.mpnet:
            return mask if self.levitated else ""
        encoder = layers.model.encoder
        bias = encoder.compute_position_bias(encoder.relative_attention_bias.weight.new_empty(1, max_pieces, 1))[0]
        if self.levitated:
            rows = self._add("Gather", self._floats(_array(bias)), "positions", axis=1)
            return self._add("Add", self._add("Gather", rows, "positions", axis=2), mask)
        both = self._add("Concat", length, length, axis=0)
        return self._add("Slice", self._floats(_array(bias)), self._ints(0, 0), both, self._ints(1, 2))

    def _ints(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, dtype=np.int64))

    def _constant(self, value: np.ndarray) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = str(len(self.nodes))
        self.nodes.append(helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        return name


def _attention(layers: LayeredModel, layer: Any) -> tuple[Any, nn.Linear, nn.Linear, nn.Linear]:
    """A layer's attention and its query, key and value projections."""
    if layers.mpnet:
        attention = layer.attention.attn
        return attention, attention.q, attention.k, attention.v
    attention = layer.attention.self
    return attention, attention.query, attention.key, attention.value


def _position_rows(layers: LayeredModel, n: int) -> Tensor:
    """Position embeddings of the first `n` pieces (with BERT's segment embedding): [n, hidden]."""
    embeddings = layers.model.embeddings
    first = 0 if layers.model.config.model_type == "bert" else embeddings.padding_idx + 1
    rows: Tensor = embeddings.position_embeddings.weight[first : first + n]
    return rows if layers.mpnet else rows + embeddings.token_type_embeddings.weight[0]


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def _value(name: str, kind: int, *sizes: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, sizes)
