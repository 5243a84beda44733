"""The relational similarity model S_pi (the paper, Section 3.4): sentences become vectors, close if they relate alike.

S(x) is the concatenation of the last states at the two entity-start marks, divided by its length; the similarity of two
sentences is the product of their vectors. `load_similarity()` gives the one that comes with the package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from erda.encoders.adapter import TrainedWeights, origin
from erda.encoders.devices import check_device
from erda.encoders.layers import LayeredModel, load_model
from erda.encoders.tokens import MarkedTokenizer, Pieces, pad
from erda.encoders.weights import ModelFolder, find_model, verify_sha256
from erda.errors import ModelError, SettingsError, unknown_name
from erda.types import Example

SHIPPED = Path(__file__).parents[1] / "encoders" / "shipped"  # a low-rank adapter over MiniLM (docs/similarity.md)
SETTINGS_FILE = "similarity.json"
VERSION = 1
MAX_PIECES = 128
CHUNK_SIZE = 16_384  # sentences whose word pieces are in memory at once
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class SimilarityNetwork(nn.Module):
    """Padded word pieces -> unit vectors [n, 2 * hidden]: last states at the two entity-start marks, concatenated."""

    def __init__(self, layered: LayeredModel) -> None:
        super().__init__()
        self.layered = layered
        self.dim = 2 * layered.hidden_size

    def forward(self, ids: Tensor, lengths: Tensor, places: Tensor) -> Tensor:
        """Piece ids [n, length], lengths [n] and places of the head's and tail's start mark [n, 2] -> [n, dim]."""
        model = self.layered
        if model.splits:
            states = model.run(model.embed(ids), lengths, 0, model.n_layers - 1)
            marks = model.last_at(states, lengths, places)
        else:
            states = model.whole(ids, lengths)
            marks = states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))
        return nn.functional.normalize(marks.flatten(1).float(), dim=-1)


class SimilarityModel:
    """S_pi ready to use. `weights` are what training changed; None is the pretrained model as it comes."""

    def __init__(
        self,
        folder: ModelFolder,
        weights: TrainedWeights | None = None,
        *,
        max_pieces: int = MAX_PIECES,
        device: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        if dtype not in DTYPES:
            raise SettingsError(unknown_name("number type", dtype, DTYPES))
        check_device(device)
        if dtype == "bfloat16" and device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise SettingsError("bfloat16 is very slow on this CPU, which has no instructions for it; use float32.")
        self.base, base_fingerprint = origin(folder)
        self._base_fingerprint = base_fingerprint
        self.weights = weights
        self.max_pieces = max_pieces
        self.device = device
        self.tokenizer = load_tokenizer(folder, max_pieces=max_pieces)
        self.network = load_network(folder, self.tokenizer)
        if weights is not None:
            weights.apply(self.network.layered)
        self.network.requires_grad_(False).eval().to(device=device, dtype=DTYPES[dtype])
        self.dim = self.network.dim
        parts = [str(VERSION), base_fingerprint, weights.digest if weights else "untrained", str(max_pieces)]
        self.fingerprint = hashlib.sha256(" ".join(parts).encode()).hexdigest()

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
                pieces = self.tokenizer.encode(chunk, blanked=[(blank_names,) * 2] * len(chunk))  # kept in no cache
                order = np.argsort([-len(one) for one in pieces], kind="stable")
                for first in range(0, len(order), batch_size):
                    rows = order[first : first + batch_size]
                    vectors[start + rows] = self._vectors([pieces[row] for row in rows])
                    bar.update(len(rows))
        return vectors

    def save(self, folder: Path | str) -> Path:
        """Write what training changed and the settings; `load_similarity(folder)` gives the model back."""
        folder = Path(folder)
        if self.weights is None:
            raise ModelError(f"an untrained similarity model is not saved; load it by its name, '{self.base}'.")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.weights.kind}.safetensors"
        self.weights.save(path, base=self._base_fingerprint)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        settings = {
            "version": VERSION,
            "base": {"name": self.base, "fingerprint": self._base_fingerprint},
            "weights": {"file": path.name, "sha256": digest},
            "max_pieces": self.max_pieces,
            "fingerprint": self.fingerprint,
        }
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        return folder

    @torch.inference_mode()
    def _vectors(self, batch: Sequence[Pieces]) -> np.ndarray:
        inputs = (tensor.to(self.device) for tensor in collate(batch, self.tokenizer.pad_id))
        vectors: np.ndarray = self.network(*inputs).cpu().numpy()
        return vectors


def load_similarity(
    name_or_dir: str | Path | None = None, *, device: str = "cpu", dtype: str = "float32"
) -> SimilarityModel:
    """The similarity model that comes with the package, one saved in a folder, or a plain encoder (untrained) by name.

    `dtype` is what vectors are computed in, `float32` or `bfloat16`; they are float32 in any case.
    """
    name = SHIPPED if name_or_dir is None else name_or_dir
    if name == SHIPPED and not (SHIPPED / SETTINGS_FILE).is_file():
        raise ModelError(f"{SHIPPED}: the adapter that comes with erda is missing; install erda again.")
    path = Path(name).expanduser()
    if not (path / SETTINGS_FILE).is_file():
        return SimilarityModel(find_model(name), device=device, dtype=dtype)
    row = _settings(path / SETTINGS_FILE)
    folder = find_model(row["base"]["name"])
    fingerprint = origin(folder)[1]
    if fingerprint != row["base"]["fingerprint"]:
        raise ModelError(
            f"{path} was trained over another version of '{folder.name}': expected weights "
            f"{row['base']['fingerprint'][:12]}, got {fingerprint[:12]}."
        )
    file = path / row["weights"]["file"]
    verify_sha256(file, row["weights"]["sha256"])
    weights = TrainedWeights.load(file, base=fingerprint)
    return SimilarityModel(folder, weights, max_pieces=row["max_pieces"], device=device, dtype=dtype)


def load_tokenizer(folder: ModelFolder, *, max_pieces: int = MAX_PIECES) -> MarkedTokenizer:
    """Word pieces with the four entity marks of their own."""
    return MarkedTokenizer.load(folder, mode="markers", max_pieces=max_pieces)


def load_network(folder: ModelFolder, tokenizer: MarkedTokenizer) -> SimilarityNetwork:
    """The pretrained network; the rows of the marks start as those of `#` and `@`."""
    return SimilarityNetwork(LayeredModel(load_model(folder), mark_origins=tokenizer.mark_origins))


def collate(batch: Sequence[Pieces], pad_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """One batch as the network takes it: piece ids [n, longest], lengths [n], places of the start marks [n, 2]."""
    places = np.array([(pieces.head, pieces.tail) for pieces in batch], dtype=np.int64)
    return *pad(batch, pad_id), torch.from_numpy(places)


def _settings(path: Path) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if row["version"] != VERSION:
            raise ModelError(f"{path} is of version {row['version']}, this erda reads version {VERSION}; train again.")
        names = (row["base"]["name"], row["base"]["fingerprint"], row["weights"]["file"], row["weights"]["sha256"])
        if not all(isinstance(name, str) for name in names) or not isinstance(row["max_pieces"], int):
            raise TypeError("a value is of the wrong kind")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is damaged: {error!r}. Train or copy the model again.") from error
    return row
