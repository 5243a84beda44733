"""Make a packaged encoder from the weights and the shipped adapter: that of MiniLM is in `src/erda/encoders/packaged`.

python tools/build_encoder.py --statistics DIR   writes the five files and prints their size and sha256
python tools/build_encoder.py --check            compares their vectors with those of float32 PyTorch
python tools/build_encoder.py --model mpnet      the same for MPNet, in the cache folder (erda data get mpnet)
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

from erda.encoders import build_encoder
from erda.encoders.contract import BACKGROUND, UNLABELLED, unit_rows
from erda.encoders.onnx_encoder import ABOUT, GRAPH, TOKENIZER, packaged_folder
from erda.encoders.weights import MODELS, graph_builder


def build(model: str, out: Path, statistics: Path | None) -> None:
    """Write graph, tokenizer, description, background and statistics of unlabelled pairs."""
    graph_builder().build_packaged(model, out, statistics=statistics)
    for name in (GRAPH, TOKENIZER, ABOUT, BACKGROUND, UNLABELLED):
        content = (out / name).read_bytes()
        print(f"{name:16} {len(content) / 1e6:6.1f} MB  sha256 {hashlib.sha256(content).hexdigest()}")


def check(model: str) -> None:
    """Print cosines between the packaged vectors and those of float32 PyTorch on sentences of the embedded dataset."""
    from erda.data.catalogue import load_dataset

    dataset = load_dataset("atlas")
    examples = dataset.train[:200]
    pooled_layers = MODELS[model].pooled_layers
    exact = unit_rows(build_encoder(model, trained_layers=0, pooled_layers=pooled_layers).embed(examples))
    packed = unit_rows(build_encoder(model, trained_layers=0, engine="packaged").embed(examples))
    cosines = (exact * packed).sum(axis=1)
    print(f"cosine with float32 over {len(cosines)} sentences: mean {cosines.mean():.4f}, worst {cosines.min():.4f}")
    assert np.isfinite(cosines).all()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("minilm", "mpnet"), default="minilm", help="default: minilm")
    parser.add_argument("--out", type=Path, help="folder (default: where erda looks for it)")
    parser.add_argument("--statistics", type=Path, help="folder of tools/build_unlabelled.py --background (MiniLM)")
    parser.add_argument("--check", action="store_true", help="compare with float32 instead of writing")
    options = parser.parse_args()
    if options.check:
        check(options.model)
    else:
        build(options.model, options.out or packaged_folder(options.model), options.statistics)


if __name__ == "__main__":
    main()
