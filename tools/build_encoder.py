"""Make the packaged encoder: `src/erda/encoders/packaged/minilm`, from the weights and the shipped adapter.

python tools/build_encoder.py            writes the four files and prints their size and sha256
python tools/build_encoder.py --check    compares their vectors with those of float32 PyTorch
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

from erda.encoders import build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.background import FILE, BackgroundFile, save_background
from erda.encoders.base import unit_rows
from erda.encoders.onnx_build import make_packed
from erda.encoders.onnx_encoder import ABOUT, GRAPH, PACKAGED, TOKENIZER
from erda.encoders.settings import TransformerSettings
from erda.encoders.weights import SHIPPED, adapter_folder, find_model

MODEL = "minilm"


def build(out: Path) -> None:
    """Write graph, tokenizer, description and background."""
    settings = TransformerSettings(adapter=SHIPPED, engine="packaged", trained_layers=0)
    weights = TrainedWeights.load(SHIPPED, base=MODEL)
    packed = make_packed(find_model(MODEL), settings, weights)
    packed.write(out)
    centres = BackgroundFile(adapter_folder(SHIPPED, base=MODEL), weights.fingerprint).read()
    if centres is None:
        raise SystemExit("The adapter has no background; run first: erda corpus background minilm FILES")
    save_background(out, centres, packed.about.fingerprint)
    for name in (GRAPH, TOKENIZER, ABOUT, FILE):
        content = (out / name).read_bytes()
        print(f"{name:16} {len(content) / 1e6:6.1f} MB  sha256 {hashlib.sha256(content).hexdigest()}")


def check() -> None:
    """Print cosines between the packaged vectors and those of float32 PyTorch on sentences of the embedded dataset."""
    from erda.data.catalogue import load_dataset

    dataset = load_dataset("atlas")
    examples = dataset.train[:200]
    exact = unit_rows(build_encoder(MODEL, trained_layers=0).embed(examples))
    packed = unit_rows(build_encoder(MODEL, trained_layers=0, engine="packaged").embed(examples))
    cosines = (exact * packed).sum(axis=1)
    print(f"cosine with float32 over {len(cosines)} sentences: mean {cosines.mean():.4f}, worst {cosines.min():.4f}")
    assert np.isfinite(cosines).all()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PACKAGED / MODEL, help="folder (default: that of the package)")
    parser.add_argument("--check", action="store_true", help="compare with float32 instead of writing")
    options = parser.parse_args()
    check() if options.check else build(options.out)


if __name__ == "__main__":
    main()
