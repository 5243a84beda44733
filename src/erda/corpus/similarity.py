"""The relational similarity model S_pi (the paper, Section 3.4): sentences become vectors, close if they relate alike.

S(x) is the vector of a transformer in mode `markers` (the last states at the two entity-start marks, concatenated),
divided by its length; the similarity of two sentences is the product of their vectors. `load_similarity()` gives the
one that comes with the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from erda.corpus.similarity_settings import MAX_PIECES
from erda.encoders.adapter import SETTINGS_FILE, TrainedWeights, fingerprint_of
from erda.encoders.base import unit_rows
from erda.encoders.devices import check_device
from erda.encoders.onnx_build import open_onnx
from erda.encoders.onnx_encoder import OnnxEncoder
from erda.encoders.packed import PackedSentences, SentenceBatches, Shown
from erda.encoders.settings import TransformerSettings
from erda.encoders.tokens import Pieces
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import SHIPPED, ModelFolder, find_model, origin
from erda.errors import ModelError, SettingsError, unknown_name
from erda.files import user_path
from erda.types import Example

CHUNK_SIZE = 16_384  # sentences whose word pieces are in memory at once
BATCH_SIZES = {"cpu": 64, "cuda": 4096}  # of packed sentences
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


class SimilarityModel:
    """S_pi ready to use. `weights` are what training changed; None is the pretrained model as it comes."""

    def __init__(
        self,
        folder: ModelFolder,
        weights: TrainedWeights | None = None,
        *,
        max_pieces: int = MAX_PIECES,  # of a model without trained weights; those have their own
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
        settings = TransformerSettings(mode="markers", max_pieces=0 if weights else max_pieces)
        if dtype == "int8":
            frozen = settings.model_copy(update={"trained_layers": 0, "engine": "onnx-int8"})
            self.encoder = open_onnx(folder, frozen, weights=weights, device=device)
        else:
            self.encoder = TransformerEncoder(folder, settings, weights=weights)
            self.encoder.requires_grad_(False).to(device=device, dtype=DTYPES[dtype])
        self.dim = self.encoder.dim
        self.fingerprint = weights.fingerprint if weights else fingerprint_of(base, "untrained", max_pieces)

    @torch.inference_mode()
    def encode(
        self, examples: Sequence[Example], *, batch_size: int = 64, progress: bool = False, blank_names: bool = False
    ) -> np.ndarray:
        """Unit vectors of sentences, float32 [n_examples, dim], in the order given; batches hold like lengths.

        `blank_names` puts a mask in the place of every entity name.
        """
        from tqdm import tqdm

        if batch_size < 1:
            raise SettingsError(f"batch_size is {batch_size}; expected 1 or more.")
        vectors = np.empty((len(examples), self.dim), dtype=np.float32)
        with tqdm(total=len(examples), unit=" sentences", disable=None if progress else True) as bar:
            for start in range(0, len(examples), CHUNK_SIZE):
                chunk = examples[start : start + CHUNK_SIZE]
                blanked = [(blank_names,) * 2] * len(chunk)
                pieces = self.encoder.tokenizer.encode(chunk, blanked=blanked)  # kept in no cache
                order = np.argsort([-len(one) for one in pieces], kind="stable")
                for first in range(0, len(order), batch_size):
                    rows = order[first : first + batch_size]
                    vectors[start + rows] = unit_rows(self._vectors([pieces[row] for row in rows]))
                    bar.update(len(rows))
        return vectors

    def _vectors(self, batch: Sequence[Pieces]) -> np.ndarray:
        if isinstance(self.encoder, OnnxEncoder):
            return self.encoder.embed_pieces(batch)
        vectors: np.ndarray = self.encoder.encode_pieces(batch).float().cpu().numpy()
        return vectors

    @torch.no_grad()
    def encode_packed(
        self,
        sentences: PackedSentences,
        rows: np.ndarray,
        *,
        blank_names: bool = False,
        progress: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Unit vectors of some rows of packed sentences, on the model's device: [n_rows, dim], in the order given."""
        from tqdm import tqdm

        if isinstance(self.encoder, OnnxEncoder):
            raise SettingsError("packed sentences need PyTorch; use dtype float32 or bfloat16.")
        device = self.encoder.device
        batches = SentenceBatches(sentences, self.encoder.tokenizer, device)
        vectors = torch.empty(len(rows), self.dim, dtype=dtype, device=device)
        order = np.argsort(-sentences.lengths[rows].sum(1, dtype=np.int64), kind="stable")
        size = BATCH_SIZES[device.type]
        with tqdm(total=len(rows), unit=" sentences", disable=None if progress else True) as bar:
            for start in range(0, len(rows), size):
                some = order[start : start + size]
                (chunk,), place = batches.chunks(Shown.whole(rows[some], blank_names=blank_names), 1)
                found = normalize(self.encoder(*chunk)[place], dim=-1)
                vectors[torch.from_numpy(some).to(device)] = found.to(dtype)
                bar.update(len(some))
        return vectors

    def save(self, folder: Path | str) -> Path:
        """Write what training changed; `load_similarity(folder)` gives the model back."""
        if self.weights is None:
            raise ModelError(f"an untrained similarity model is not saved; load it by its name, '{self.base}'.")
        self.weights.save(Path(folder))
        return Path(folder)


def load_similarity(
    name_or_dir: str | Path | None = None, *, device: str = "cpu", dtype: str = "float32"
) -> SimilarityModel:
    """The similarity model that comes with the package, one saved in a folder, or a plain encoder (untrained) by name.

    `dtype` is what vectors are computed in: `float32`, `bfloat16` (on a GPU) or `int8` (on a CPU, by ONNX Runtime).
    They are float32 in any case.
    """
    name = SHIPPED if name_or_dir is None else name_or_dir
    if name != SHIPPED and not (user_path(name) / SETTINGS_FILE).is_file():
        return SimilarityModel(find_model(name), device=device, dtype=dtype)
    weights = TrainedWeights.load(name)
    return SimilarityModel(find_model(weights.base.name), weights, device=device, dtype=dtype)
