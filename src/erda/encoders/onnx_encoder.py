"""A frozen transformer in mode `markers` on ONNX Runtime: for a CPU, where it is faster than PyTorch.

What it needs (`PackedEncoder`: the graph, the tokenizer and a few numbers) is made once from the weights and kept in
the cache folder, written whole and compared with its sha256 when it is read; a damaged one is made again. Opened from
there, neither the weights nor transformers are loaded. An export holds the same three files.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from erda.encoders.adapter import TrainedWeights
from erda.encoders.devices import device_kind
from erda.encoders.frozen import FrozenCache
from erda.encoders.layers import BERT_KIN
from erda.encoders.marked import MarkedEncoder
from erda.encoders.settings import EncoderSpec, TransformerSettings
from erda.encoders.tokens import MarkedTokenizer, Pieces
from erda.encoders.transformer import LEARNING_RATES, TransformerEncoder
from erda.encoders.weights import ModelFolder
from erda.errors import ErdaError, ModelError, SettingsError, WriteError, not_installed
from erda.files import cache_folder, locked, read_bytes, read_json, write_bytes, write_json

VERSION = 3  # of the graph and of what stands beside it
GRAPH, TOKENIZER, ABOUT = "model.onnx", "tokenizer.json", "encoder.json"
MODULES = ("onnx", "onnxruntime")
INT8_FITS = ("minilm",)  # models that lose at most 0.3 points by int8, with the adapter that ships (docs/encoders.md)
BUILD_SECONDS = 300  # to wait for another process that makes the same graph


@dataclass(frozen=True, slots=True)
class AboutEncoder:
    """What `encoder.json` holds: which files stand beside it, and how a sentence becomes piece ids."""

    version: int
    engine: str
    model: str
    dim: int
    max_pieces: int
    vocab_size: int  # the four marks have the ids after it
    special: dict[str, int]  # ids of the control pieces: cls, sep, unk, pad, mask
    sha256: dict[str, str]  # of each file


@dataclass(frozen=True, slots=True, eq=False)
class PackedEncoder:
    """An encoder as three files."""

    about: AboutEncoder
    graph: bytes
    tokenizer: bytes

    def write(self, folder: Path) -> None:
        """Write the three files, `encoder.json` last."""
        write_bytes(folder / GRAPH, self.graph)
        write_bytes(folder / TOKENIZER, self.tokenizer)
        write_json(folder / ABOUT, self.about)

    @classmethod
    def read(cls, folder: Path) -> PackedEncoder:
        """What `write` wrote, or a ModelError."""
        about = read_json(folder / ABOUT, AboutEncoder, error=ModelError)
        files = {name: read_bytes(folder / name, error=ModelError) for name in (GRAPH, TOKENIZER)}
        if about.version != VERSION or about.sha256 != _digests(files):
            raise ModelError(f"{folder}: is damaged, or of another version of erda.")
        return cls(about, files[GRAPH], files[TOKENIZER])


class OnnxEncoder(MarkedEncoder):
    """Vectors as `TransformerEncoder` gives them where no layer is trained. Each sentence is a run of its own."""

    def __init__(self, packed: PackedEncoder, spec: EncoderSpec, *, cache: FrozenCache | None = None) -> None:
        super().__init__()
        import onnxruntime

        about = packed.about
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # several sentences are run at once instead
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(packed.graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base
            raise ModelError(f"ONNX Runtime {onnxruntime.__version__} cannot load the encoder: {error}") from error
        self.tokenizer = MarkedTokenizer.from_json(
            packed.tokenizer.decode(),
            special=about.special,
            mode="markers",
            vocab_size=about.vocab_size,
            limit=about.max_pieces,
        )
        self.engine = about.engine
        self.spec = spec
        self.dim = about.dim
        self.learning_rate = LEARNING_RATES["markers"]
        self.cache = cache
        self._fingerprint = hashlib.sha256(f"{about.sha256[GRAPH]} {onnxruntime.__version__}".encode()).hexdigest()
        self.eval()

    def __deepcopy__(self, memo: dict[int, object]) -> OnnxEncoder:
        return self  # nothing in it ever changes

    @property
    def device(self) -> torch.device:
        """Always the CPU."""
        return torch.device("cpu")

    def encode_pieces(self, batch: Sequence[Pieces]) -> Tensor:
        """Vectors of sentences that are already word pieces: [n, dim]."""
        if not batch:
            return torch.zeros(0, self.dim)
        if self.cache is None or self.cache.max_bytes == 0:
            return torch.cat(self._run(batch))
        return torch.cat(self.cache.states(self._fingerprint, self.dim).of(batch, self._run)).float()

    def _run(self, batch: Sequence[Pieces]) -> list[Tensor]:
        """A vector of each sentence, [1, dim]; as many at once as PyTorch would use threads."""
        n_threads = min(torch.get_num_threads(), len(batch))
        if n_threads == 1:
            return list(map(self._run_one, batch))
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(self._run_one, batch))

    def _run_one(self, pieces: Pieces) -> Tensor:
        inputs = {"ids": pieces.ids, "marks": np.array([pieces.head, pieces.tail])}
        return torch.from_numpy(self._session.run(None, inputs)[0])[None]


def open_onnx(
    folder: ModelFolder,
    settings: TransformerSettings,
    *,
    weights: TrainedWeights | None,
    device: str,
    cache: FrozenCache | None = None,
) -> OnnxEncoder:
    """The encoder that `settings.engine` asks for, or why ONNX Runtime cannot run it."""
    reason = unfit(folder, settings, device)
    if reason:
        raise SettingsError(f"engine '{settings.engine}': {reason}")
    packed = pack_encoder(folder, settings, weights=weights)
    filled = {"learning_rate": settings.learning_rate or LEARNING_RATES["markers"]}
    fingerprint = weights.fingerprint if weights else folder.fingerprint
    return OnnxEncoder(packed, EncoderSpec(folder.name, settings.model_dump() | filled, fingerprint), cache=cache)


def pack_encoder(
    folder: ModelFolder, settings: TransformerSettings, *, weights: TrainedWeights | None
) -> PackedEncoder:
    """The files of an encoder, from the cache folder or made and kept there."""
    engine = settings.engine
    if engine == "auto":
        engine = "onnx-int8" if settings.adapter == "shipped" and folder.name in INT8_FITS else "onnx"
    made_of = [VERSION, engine, folder.fingerprint, weights.fingerprint if weights else "", settings.max_pieces]
    place = cache_folder() / "onnx" / hashlib.sha256(repr(made_of).encode()).hexdigest()[:32]
    found = _read(place)
    if found is None:
        try:
            with locked(place, busy="another process makes the same encoder", error=ModelError, wait=BUILD_SECONDS):
                found = _read(place)
                if found is None:
                    found = _make(folder, settings, weights, engine)
                    found.write(place)
        except WriteError as fault:
            warnings.warn(f"The graph of the encoder is made anew each time: {fault}", stacklevel=2)
    return found or _make(folder, settings, weights, engine)


def unfit(folder: ModelFolder, settings: TransformerSettings, device: str) -> str:
    """Why ONNX Runtime cannot run an encoder; nothing where it can."""
    missing = [module for module in MODULES if find_spec(module) is None]
    shape = read_json(folder.path / "config.json", _Shape, error=ModelError)
    if settings.mode != "markers" or settings.trained_layers or settings.projection or settings.precision != "fp32":
        return "it runs frozen encoders: expected mode 'markers', trained_layers 0, projection 0, precision 'fp32'."
    if device_kind(device) != "cpu":
        return f"it runs on a CPU here, not on '{device}'; use engine 'torch'."
    if shape.model_type not in (*BERT_KIN, "mpnet") or shape.hidden_act != "gelu":
        return f"it runs BERT, RoBERTa and MPNet, not '{shape.model_type}' ({shape.hidden_act}); use engine 'torch'."
    return not_installed(missing) if missing else ""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a model's `config.json` says of its kind."""

    model_type: str
    hidden_act: str = "gelu"


def _read(place: Path) -> PackedEncoder | None:
    try:
        return PackedEncoder.read(place) if place.is_dir() else None
    except ErdaError:  # damaged: it is made again
        return None


def _make(
    folder: ModelFolder, settings: TransformerSettings, weights: TrainedWeights | None, engine: str
) -> PackedEncoder:
    from erda.encoders.onnx_graph import build_graph

    encoder = TransformerEncoder(folder, settings, weights=weights)
    tokenizer = encoder.tokenizer
    graph = build_graph(encoder.layers, max_pieces=tokenizer.limit, int8=engine == "onnx-int8")
    files = {GRAPH: graph, TOKENIZER: tokenizer.to_json().encode()}
    about = AboutEncoder(
        version=VERSION,
        engine=engine,
        model=folder.name,
        dim=encoder.dim,
        max_pieces=tokenizer.limit,
        vocab_size=tokenizer.vocab_size,
        special=tokenizer.special,
        sha256=_digests(files),
    )
    return PackedEncoder(about, files[GRAPH], files[TOKENIZER])


def _digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
