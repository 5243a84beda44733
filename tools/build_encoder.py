"""Make the files of the encoder `open` in `src/erda/encoders/packaged` from the weights of `erda corpus train`.

python tools/build_encoder.py WEIGHTS --pairs FILE.json.gz    writes five files and prints their size and sha256
python tools/build_encoder.py WEIGHTS --check                 compares its vectors with those of float32 PyTorch
python tools/build_encoder.py WEIGHTS --ranges FILE.npz       the ranges of inputs alone, which open-mpnet comes with
python tools/build_encoder.py WEIGHTS --recover               writes the weights of the packaged graph, rounded as there

WEIGHTS is the folder that the command in `training.json` wrote; docs/similarity.md describes the training. The pairs
are those of `tools/build_unlabelled.py --tag-only`; the int8 encoder itself embeds them, which takes minutes. After a
change of the graph, or to train `open` further where that folder is gone, recover the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import torch
from build_unlabelled import TaggedPairs, write_statistics
from onnx import numpy_helper

from erda.corpus.similarity_training import REPORT_FILE
from erda.encoders import TransformerSettings, build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import unit_rows
from erda.encoders.layers import LayeredModel
from erda.encoders.onnx_encoder import PackedEncoder, packaged_folder
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import find_model, graph_builder, origin
from erda.errors import ErdaError
from erda.files import read_bytes, write_arrays, write_bytes

NAME = "open"


def build(weights: Path, pairs: Path, vectors: Path | None) -> None:
    """Write graph, tokenizer, description, statistics of unlabelled pairs and the training's record."""
    out, tagged, report = packaged_folder(NAME), TaggedPairs.read(pairs), read_bytes(weights / REPORT_FILE)
    graph_builder().pack_weights(TrainedWeights.load(weights), ranges=ranges(weights)).write(out)
    given = np.load(vectors)["vectors"] if vectors else None
    write_statistics(build_encoder(NAME), tagged, out, vectors=given)
    write_bytes(out / REPORT_FILE, report)
    for path in sorted(out.iterdir()):
        content = path.read_bytes()
        print(f"{path.name:16} {len(content) / 1e6:6.1f} MB  sha256 {hashlib.sha256(content).hexdigest()}")


def ranges(weights: Path) -> np.ndarray:
    """Ranges of the inputs of the graph."""
    trained = TrainedWeights.load(weights)
    settings = TransformerSettings(mode=trained.mode)
    found: np.ndarray = graph_builder().input_ranges(
        TransformerEncoder(find_model(trained.base.name), settings, weights=trained)
    )
    return found


def recover(out: Path) -> None:
    """Write the weights of the packaged encoder, a BERT. Word vectors are those of the pretrained model."""
    packed = PackedEncoder.read(packaged_folder(NAME))
    about, folder = packed.about, find_model(packed.about.model)
    layers = TransformerEncoder(folder, TransformerSettings(mode=about.mode)).layers
    with torch.no_grad():
        _restore(layers, onnx.load_model_from_string(packed.graph).graph)
    fresh = TrainedWeights.fresh(layers, base=origin(folder), max_pieces=about.max_pieces, rank=0)
    halves = {name: tensor.half() for name, tensor in fresh.tensors.items()}
    weights = replace(fresh, tensors=halves, pooled_layers=about.pooled_layers, mode=about.mode)
    replace(weights, trained_on=about.trained_on).save(out)
    shutil.copyfile(packaged_folder(NAME) / REPORT_FILE, out / REPORT_FILE)


def _restore(layers: LayeredModel, graph: onnx.GraphProto) -> None:
    """Copy the weights of a graph, which has the layers of a BERT in order, into the model."""
    values = {one.name: torch.tensor(numpy_helper.to_array(one)) for one in graph.initializer}
    widened = (node for node in graph.node if node.op_type == "Cast" and node.input[0] in values)
    values |= {node.output[0]: values[node.input[0]].float() for node in widened}
    embeddings, blocks = layers.model.embeddings, [(one.attention, one) for one in layers.layers]
    words, scales = (values[node.input[0]] for node in graph.node if "ids" in node.input[1:])
    layers.marks.copy_((words * scales)[layers.vocab_size :])
    (places,) = (values[node.input[0]] for node in graph.node if "positions" in node.input[1:])
    embeddings.position_embeddings.weight[: len(places)] = places
    embeddings.token_type_embeddings.weight.zero_()  # part of the positions
    norms = [embeddings.LayerNorm, *(part.output.LayerNorm for block in blocks for part in block)]
    found = [node.input for node in graph.node if node.op_type == "LayerNormalization"]
    for norm, (_, weight, bias) in zip(norms, found, strict=True):
        norm.weight.copy_(values[weight]), norm.bias.copy_(values[bias])
    linears = _linears(graph, values)
    for attention, layer in blocks:
        own, dense = attention.self, (attention.output.dense, layer.intermediate.dense, layer.output.dense)
        for one in (own.query, own.key, own.value, *dense):
            weight, bias = next(linears)
            one.weight.copy_(weight), one.bias.copy_(bias)


def _linears(graph: onnx.GraphProto, values: Mapping[str, torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Weights [out, in] and biases of linear layers; a bias that a product does not contain is added after it."""
    made = {node.output[0]: node for node in graph.node}
    added = [(place, node.input[1]) for place, node in enumerate(graph.node) if node.op_type == "Add"]
    for place, node in enumerate(graph.node):
        if node.op_type == "MatMulIntegerToFloat":
            whole, scale, states = values[node.input[1]], values[node.input[3]], made[made[node.input[0]].input[0]]
            columns = values[states.input[1]] if states.op_type == "Mul" else 1.0  # 1 / scale of each column
            bias = node.input[6] if len(node.input) > 6 else next(name for at, name in added if at > place)
            yield whole.T * scale[:, None] * columns, values[bias]


def check(weights: Path) -> None:
    """Print cosines between the packaged vectors and those of float32 PyTorch on sentences of the embedded dataset."""
    from erda.data.catalogue import load_dataset

    examples, trained = load_dataset("atlas").train[:200], TrainedWeights.load(weights)
    settings = {"adapter": str(weights), "mode": trained.mode, "trained_layers": 0}
    exact = unit_rows(build_encoder(trained.base.name, **settings).embed(examples))
    cosines = (exact * unit_rows(build_encoder(NAME).embed(examples))).sum(axis=1)
    print(f"cosine with float32 over {len(cosines)} sentences: mean {cosines.mean():.4f}, worst {cosines.min():.4f}")
    assert np.isfinite(cosines).all()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, metavar="WEIGHTS", help="folder of `erda corpus train`")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pairs", type=Path, metavar="FILE", help="tagged pairs of tools/build_unlabelled.py --tag-only")
    what.add_argument("--check", action="store_true", help="compare with float32 instead of writing")
    what.add_argument("--ranges", type=Path, metavar="FILE", help="write the ranges of inputs to this file instead")
    what.add_argument("--recover", action="store_true", help="write the packaged weights to this folder instead")
    parser.add_argument("--vectors", type=Path, help="vectors of the pairs, of tools/build_unlabelled.py --keep")
    options = parser.parse_args()
    if options.check:
        check(options.weights)
    elif options.ranges:
        write_arrays(options.ranges, {"ranges": ranges(options.weights)})
    elif options.recover:
        recover(options.weights)
    else:
        build(options.weights, options.pairs, options.vectors)


if __name__ == "__main__":
    try:
        main()
    except ErdaError as fault:
        raise SystemExit(str(fault)) from None
