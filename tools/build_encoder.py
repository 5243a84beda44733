"""Make the files of the encoder `open` in `src/erda/encoders/packaged` from the weights of `erda corpus train`.

python tools/build_encoder.py WEIGHTS --pairs FILE.json.gz    writes six files and prints their size and sha256
python tools/build_encoder.py WEIGHTS --check                 compares its vectors with those of float32 PyTorch

WEIGHTS is the folder that the command in `training.json` wrote; docs/similarity.md describes the training. The pairs
are those of `tools/build_unlabelled.py --tag-only`; the int8 encoder itself embeds them, which takes minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from pathlib import Path

import numpy as np
from build_unlabelled import TaggedPairs, write_statistics

from erda.encoders import build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import unit_rows
from erda.encoders.onnx_encoder import packaged_folder
from erda.encoders.weights import graph_builder

NAME = "open"


def build(weights: Path, pairs: Path, vectors: Path | None) -> None:
    """Write graph, tokenizer, description, background, statistics of unlabelled pairs and the training's record."""
    out = packaged_folder(NAME)
    graph_builder().pack_weights(TrainedWeights.load(weights)).write(out)
    given = np.load(vectors)["vectors"] if vectors else None
    write_statistics(build_encoder(NAME), TaggedPairs.read(pairs), out, vectors=given)
    shutil.copyfile(weights / "training.json", out / "training.json")
    for path in sorted(out.iterdir()):
        content = path.read_bytes()
        print(f"{path.name:16} {len(content) / 1e6:6.1f} MB  sha256 {hashlib.sha256(content).hexdigest()}")


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
    parser.add_argument("--vectors", type=Path, help="vectors of the pairs, of tools/build_unlabelled.py --keep")
    options = parser.parse_args()
    if options.check:
        check(options.weights)
    else:
        build(options.weights, options.pairs, options.vectors)


if __name__ == "__main__":
    main()
