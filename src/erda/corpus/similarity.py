"""The relational similarity model S_pi (the paper, Section 3.4): sentences with the same relation get close vectors.

S(x) is the unit vector of a transformer in mode `markers`: the last states at the two entity-start marks, concatenated
and divided by their length. The similarity of two sentences is the inner product of their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from erda.corpus.training_batches import MAX_PIECES
from erda.encoders import TransformerSettings, check_device
from erda.encoders.adapter import SETTINGS_FILE, TrainedWeights, fingerprint_of
from erda.encoders.contract import unit_rows
from erda.encoders.onnx_encoder import OnnxEncoder
from erda.encoders.packed import PackedSentences, SentenceBatches, Shown
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import SHIPPED, ModelFolder, find_model, graph_builder, origin
from erda.errors import SettingsError, unknown_name
from erda.files import user_path
from erda.types import Example

PACKED_BATCH_SIZES = {"cpu": 64, "cuda": 4096}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


class SimilarityModel:
    """A loaded similarity model. `weights` are the trained weights; None uses the pretrained model unchanged."""

    def __init__(
        self,
        folder: ModelFolder,
        weights: TrainedWeights | None = None,
        *,
        max_pieces: int = MAX_PIECES,  # of a model without trained weights; `weights` have their own limit
        device: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        if dtype not in DTYPES:
            raise SettingsError(unknown_name("number type", dtype, DTYPES))
        check_device(device)
        if dtype == "bfloat16" and device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise SettingsError("bfloat16 is very slow on this CPU, which has no instructions for it; use float32.")
        base = origin(folder)
        self.base = base.name
        self.weights = weights
        self.encoder: TransformerEncoder | OnnxEncoder
        mode = weights.mode if weights else "markers"
        settings = TransformerSettings(mode=mode, max_pieces=0 if weights else max_pieces)
        if dtype == "int8":
            frozen = settings.model_copy(update={"trained_layers": 0, "engine": "onnx-int8"})
            self.encoder = graph_builder().open_onnx(folder, frozen, weights=weights, device=device)
        else:
            self.encoder = TransformerEncoder(folder, settings, weights=weights)
            self.encoder.requires_grad_(False).to(device=device, dtype=DTYPES[dtype])
        self.dim = self.encoder.dim
        self.fingerprint = weights.fingerprint if weights else fingerprint_of(base, "untrained", max_pieces)

    def encode(self, examples: Sequence[Example], *, batch_size: int = 64, blank_names: bool = False) -> np.ndarray:
        """Encode sentences as unit vectors: [n_examples, dim] float32, in the order of `examples`.

        `blank_names` replaces every entity name by a mask.
        """
        return unit_rows(self.encoder.embed(examples, blanked=blank_names, batch_size=batch_size))

    @torch.no_grad()
    def encode_shown(self, sentences: PackedSentences, shown: Shown) -> Tensor:
        """Encode packed sentences as `shown`: unit vectors on the model's device, [n, dim]."""
        from tqdm import tqdm

        if isinstance(self.encoder, OnnxEncoder):
            raise SettingsError("packed sentences need PyTorch; use dtype float32 or bfloat16.")
        device = self.encoder.device
        batches = SentenceBatches(sentences, self.encoder.tokenizer, device)
        vectors = torch.empty(len(shown.rows), self.dim, device=device)
        order = np.argsort(-sentences.lengths[shown.rows].sum(1, dtype=np.int64), kind="stable")
        size = PACKED_BATCH_SIZES[device.type]
        for start in tqdm(range(0, len(order), size), desc="sentences", unit="batch", leave=False, disable=None):
            some = order[start : start + size]
            (chunk,), place = batches.chunks(Shown(shown.rows[some], shown.names[some], shown.around[some]), 1)
            vectors[torch.from_numpy(some).to(device)] = normalize(self.encoder(*chunk)[place], dim=-1)
        return vectors


def load_similarity(
    name_or_dir: str | Path | None = None, *, device: str = "cpu", dtype: str = "float32"
) -> SimilarityModel:
    """Load the packaged similarity model (default), a model saved in a folder, or an untrained encoder by name.

    `dtype` is the number type of the computation: `float32`, `bfloat16` (GPU) or `int8` (CPU, by ONNX Runtime). Vectors
    are float32 in all three.
    """
    name = SHIPPED if name_or_dir is None else name_or_dir
    if name != SHIPPED and not (user_path(name) / SETTINGS_FILE).is_file():
        return SimilarityModel(find_model(name), device=device, dtype=dtype)
    weights = TrainedWeights.load(name)
    return SimilarityModel(find_model(weights.base.name), weights, device=device, dtype=dtype)
