"""Keep the pairs without a relation that are closest to a relation: hard negatives of the labelled training.

python tools/closest_pairs.py labelled.npz --out hard.npz --device cuda

Reads and writes packed sentences (`erda corpus pairs`). Closeness is the largest cosine of a pair's vector with the
mean of a relation's sentences, by the shipped MPNet, which has seen no label. All labelled sentences are kept.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize

from erda.corpus.similarity import SimilarityModel, load_similarity
from erda.corpus.training_pairs import UNRELATED, PairRows
from erda.encoders.packed import Shown
from erda.encoders.weights import SHIPPED, adapter_folder
from erda.errors import ErdaError

COLUMNS = ("head", "tail", "place", "relation")


def closeness(model: SimilarityModel, rows: PairRows) -> np.ndarray:
    """Largest cosine of each row with the mean of a relation: [n]."""
    vectors = model.encode_shown(rows.sentences, Shown.whole(np.arange(len(rows))))
    relation, mean = torch.from_numpy(rows.relation).to(vectors.device).long(), vectors.mean(0)
    labelled = relation >= 0
    sums = torch.zeros(len(rows.relations), vectors.shape[1], device=vectors.device)
    sums.index_add_(0, relation[labelled], vectors[labelled])
    cosines = normalize(vectors - mean, dim=1) @ normalize(normalize(sums, dim=1) - mean, dim=1).T
    found: np.ndarray = cosines.max(dim=1).values.cpu().numpy()
    return found


def closest(relation: np.ndarray, close: np.ndarray, share: float) -> np.ndarray:
    """Rows of all labelled sentences, and of the closest `share` of the pairs without a relation."""
    none = relation == UNRELATED
    return np.flatnonzero(~none | (close >= np.quantile(close[none], 1 - share)))


def main() -> None:
    """Write the file and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labelled", type=Path, help="packed sentences")
    parser.add_argument("--share", type=float, default=0.4, help="of the pairs without a relation (default: 0.4)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = PairRows.load(options.labelled)
    if UNRELATED not in rows.relation or not 0 < options.share <= 1:
        raise SystemExit(f"{options.labelled}: needs pairs without a relation, and a share above 0 and at most 1.")
    dtype = "bfloat16" if options.device == "cuda" else "float32"
    close = closeness(load_similarity(adapter_folder(SHIPPED, base="mpnet"), device=options.device, dtype=dtype), rows)
    kept = closest(rows.relation, close, options.share)
    columns = {name: getattr(rows, name)[kept] for name in COLUMNS}
    replace(rows, sentences=rows.sentences.take(kept), **columns).save(options.out)
    print(f"{options.out}: {len(kept):,} of {len(rows):,} sentences")


if __name__ == "__main__":
    try:
        main()
    except ErdaError as fault:
        raise SystemExit(str(fault)) from None
