"""Make the files of the encoder `open` in `src/erda/encoders/packaged` from the weights of `erda corpus train`.

python tools/build_encoder.py WEIGHTS --pairs FILE.json.gz    writes six files and prints their size and sha256
python tools/build_encoder.py WEIGHTS --check                 compares its vectors with those of float32 PyTorch
python tools/build_encoder.py --renew --pairs FILE.json.gz    after a change of the graph: keeps the packaged weights

WEIGHTS is the folder that the command in `training.json` wrote; docs/similarity.md describes the training. The pairs
are those of `tools/build_unlabelled.py --tag-only`; the int8 encoder itself embeds them, which takes minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from build_unlabelled import TaggedPairs, write_statistics
from onnx import TensorProto, numpy_helper

from erda.encoders import TransformerSettings, build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import unit_rows
from erda.encoders.onnx_encoder import GRAPH, PackedEncoder, crc32_of, packaged_folder
from erda.encoders.weights import SHIPPED, adapter_folder, find_model, graph_builder
from erda.errors import ErdaError

NAME = "open"


def build(weights: Path | None, pairs: Path, vectors: Path | None) -> None:
    """Write graph, tokenizer, description, statistics of unlabelled pairs and the training's record."""
    out, tagged = packaged_folder(NAME), TaggedPairs.read(pairs)
    packed = graph_builder().pack_weights(TrainedWeights.load(weights)) if weights else renewed(PackedEncoder.read(out))
    packed.write(out)
    given = np.load(vectors)["vectors"] if vectors else None
    write_statistics(build_encoder(NAME), tagged, out, vectors=given)
    if weights:
        shutil.copyfile(weights / "training.json", out / "training.json")
    for path in sorted(out.iterdir()):
        content = path.read_bytes()
        print(f"{path.name:16} {len(content) / 1e6:6.1f} MB  sha256 {hashlib.sha256(content).hexdigest()}")


def renewed(old: PackedEncoder) -> PackedEncoder:
    """The graph of today's builder with the weights of a packaged one, bit for bit."""
    weights = replace(TrainedWeights.load(adapter_folder(SHIPPED)), mode=old.about.mode)  # of the same shapes
    settings = TransformerSettings(mode=old.about.mode, trained_layers=0, engine=old.about.engine)
    built = graph_builder().pack_encoder(find_model(old.about.model), settings, weights=weights)
    graphs = [onnx.load_model_from_string(one.graph) for one in (built, old)]
    for new, kept in zip(*map(_weights, graphs), strict=True):
        if (new.data_type, new.dims) != (kept.data_type, kept.dims):
            raise SystemExit(f"{new.name} is {list(new.dims)}, not {list(kept.dims)}: build it from its weights.")
        new.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(kept), new.name))
    graph = graphs[0].SerializeToString()
    sha256 = old.about.sha256 | {GRAPH: hashlib.sha256(graph).hexdigest()}
    crc32 = old.about.crc32 | crc32_of({GRAPH: graph})
    return PackedEncoder(replace(old.about, sha256=sha256, crc32=crc32), graph, old.tokenizer)


def _weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The constants that are weights: neither shapes nor single numbers."""
    constants = model.graph.initializer
    return [one for one in constants if one.data_type != TensorProto.INT64 and np.prod(one.dims) > 1]


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
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("weights", type=Path, metavar="WEIGHTS", nargs="?", help="folder of `erda corpus train`")
    source.add_argument("--renew", action="store_true", help="keep the packaged weights, build the graph anew")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pairs", type=Path, metavar="FILE", help="tagged pairs of tools/build_unlabelled.py --tag-only")
    what.add_argument("--check", action="store_true", help="compare with float32 instead of writing")
    parser.add_argument("--vectors", type=Path, help="vectors of the pairs, of tools/build_unlabelled.py --keep")
    options = parser.parse_args()
    if options.check and options.renew:
        parser.error("--check: name the folder of the weights.")
    if options.check:
        check(options.weights)
    else:
        build(options.weights, options.pairs, options.vectors)


if __name__ == "__main__":
    try:
        main()
    except ErdaError as fault:
        raise SystemExit(str(fault)) from None
