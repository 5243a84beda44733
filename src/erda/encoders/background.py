"""The background of an encoder: centres of the vectors of any sentences, what relations never taught look like.

It lies beside the trained weights that it was made with (`erda corpus background`) and serves these alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erda.encoders.adapter import SHIPPED, adapter_folder
from erda.encoders.settings import EncoderSpec
from erda.encoders.weights import find_model, origin
from erda.errors import ModelError
from erda.files import read_arrays, write_arrays

FILE = "background.npz"
AGAIN = "Make it again: erda corpus background."


def load_background(spec: EncoderSpec) -> Tensor | None:
    """The centres, [n, dim]; None where there are none for the weights of that encoder."""
    adapter = str(spec.settings.get("adapter", ""))
    base = origin(find_model(spec.name)).name if adapter == SHIPPED else spec.name
    path = adapter_folder(adapter, base=base) / FILE if adapter else Path()
    if not path.is_file():
        return None
    arrays = read_arrays(path, error=ModelError, remedy=AGAIN)
    centres, made_with = arrays.get("centres"), arrays.get("fingerprint")
    if centres is None or made_with is None or centres.ndim != 2 or not np.isfinite(centres).all():
        raise ModelError(f"{path}: holds no centres of vectors. {AGAIN}")
    return torch.from_numpy(centres).float() if str(made_with) == spec.fingerprint else None


def save_background(folder: Path, centres: Tensor, fingerprint: str) -> Path:
    """Write centres, in half precision, beside the trained weights with that fingerprint."""
    arrays = {"centres": centres.half().cpu().numpy(), "fingerprint": np.array(fingerprint)}
    write_arrays(folder / FILE, arrays, compress=False)
    return folder / FILE


def centres_of(vectors: Tensor, n: int, *, seed: int = 0, n_rounds: int = 20) -> Tensor:
    """The centres of n clusters of vectors (k-means), [n, dim]; fewer where there are fewer vectors."""
    generator = torch.Generator().manual_seed(seed)
    centres = vectors[torch.randperm(len(vectors), generator=generator)[:n]]
    for _ in range(n_rounds):
        nearest = (vectors @ centres.t() - centres.square().sum(dim=1) / 2).argmax(dim=1)
        counts = torch.bincount(nearest, minlength=len(centres))[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, vectors)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres
