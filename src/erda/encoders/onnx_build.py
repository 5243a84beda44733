"""Build the files of an ONNX encoder from PyTorch weights and cache them on disk (extra `train`)."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from erda.encoders.adapter import TrainedWeights
from erda.encoders.background import BackgroundFile, save_background
from erda.encoders.devices import device_kind
from erda.encoders.layers import BERT_KIN
from erda.encoders.onnx_encoder import (
    GRAPH,
    TOKENIZER,
    VERSION,
    AboutEncoder,
    OnnxEncoder,
    PackedEncoder,
    crc32_of,
    digests,
    packaged_folder,
)
from erda.encoders.onnx_graph import build_graph
from erda.encoders.settings import PooledLayers, TransformerSettings
from erda.encoders.transformer import LEARNING_RATES, TransformerEncoder
from erda.encoders.unlabelled import UnlabelledFile, save_unlabelled
from erda.encoders.weights import SHIPPED, ModelFolder, adapter_folder, find_model
from erda.errors import ErdaError, ModelError, SettingsError, WriteError, not_installed
from erda.files import cache_folder, locked, read_json, remove_left_lock, remove_unfinished
from erda.types import EncoderSpec

MODULES = ("onnx", "onnxruntime")
BUILD_SECONDS = 300  # timeout for another process that builds the same graph
LAYERS: Mapping[str, PooledLayers] = {"minilm": 2, "mpnet": 4}  # that engine `packaged` averages (docs/research.md)
STATISTICS = "packaged"  # subfolder of a shipped adapter: background and unlabelled pairs over these layers


def open_onnx(
    folder: ModelFolder,
    settings: TransformerSettings,
    *,
    weights: TrainedWeights | None,
    device: str,
    kept: dict[bytes, np.ndarray] | None = None,
) -> OnnxEncoder:
    """Open an encoder for engine `onnx` or `onnx-int8`; the first call builds its files."""
    packed = pack_encoder(folder, settings, weights=weights, device=device)
    filled = {"learning_rate": settings.learning_rate or LEARNING_RATES["markers"]}
    fingerprint = weights.fingerprint if weights else folder.fingerprint
    spec = EncoderSpec(folder.name, settings.model_dump() | filled, fingerprint)
    return OnnxEncoder(packed.about, lambda: packed, spec, kept=kept)


def pack_encoder(
    folder: ModelFolder, settings: TransformerSettings, *, weights: TrainedWeights | None, device: str = "cpu"
) -> PackedEncoder:
    """Read the files of an encoder from the cache folder, or build and cache them."""
    reason = unfit(folder, settings, device)
    if reason:
        raise SettingsError(f"engine '{settings.engine}': {reason}")
    trained = weights.fingerprint if weights else ""
    inputs = [VERSION, settings.engine, folder.fingerprint, trained, settings.max_pieces]
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()[:32]
    place = cache_folder() / "onnx" / key
    found = _read(place, key)
    if found is not None:
        remove_left_lock(place)
    else:
        try:
            with locked(place, busy="another process builds the same encoder", error=ModelError, wait=BUILD_SECONDS):
                found = _read(place, key)
                if found is None:
                    remove_unfinished(place)
                    found = make_packed(folder, settings, weights, made_from=key)
                    found.write(place)
        except WriteError as fault:
            warnings.warn(f"The encoder's graph cannot be cached; each start builds it again: {fault}", stacklevel=2)
    return found or make_packed(folder, settings, weights)


def unfit(folder: ModelFolder, settings: TransformerSettings, device: str) -> str:
    """Reason why ONNX Runtime cannot run an encoder; empty if it can."""
    missing = [module for module in MODULES if find_spec(module) is None]
    shape = read_json(folder.path / "config.json", _Shape, error=ModelError)
    if settings.mode != "markers" or settings.trained_layers or settings.projection or settings.precision != "fp32":
        return "it runs frozen encoders: expected mode 'markers', trained_layers 0, projection 0, precision 'fp32'."
    if device_kind(device) != "cpu":
        return f"it runs on a CPU, not on '{device}'; use engine 'torch'."
    if shape.model_type not in (*BERT_KIN, "mpnet") or shape.hidden_act != "gelu":
        return f"it runs BERT, RoBERTa and MPNet, not '{shape.model_type}' ({shape.hidden_act}); use engine 'torch'."
    return not_installed(missing) if missing else ""


@dataclass(frozen=True, slots=True)
class _Shape:
    """Architecture fields of a `config.json`."""

    model_type: str
    hidden_act: str = "gelu"


def _read(place: Path, made_from: str = "") -> PackedEncoder | None:
    """Read the files of an encoder; None if they are damaged or made from something else: rebuild them."""
    try:
        found = PackedEncoder.read(place) if place.is_dir() else None
    except ErdaError:
        return None
    return found if found and found.about.made_from == made_from else None


def make_packed(
    folder: ModelFolder, settings: TransformerSettings, weights: TrainedWeights | None, *, made_from: str = ""
) -> PackedEncoder:
    """Build the files of an encoder from its weights."""
    encoder = TransformerEncoder(folder, settings, weights=weights)
    tokenizer = encoder.tokenizer
    graph = build_graph(encoder.layers, max_pieces=tokenizer.limit, int8=settings.engine != "onnx")
    files = {GRAPH: graph, TOKENIZER: tokenizer.to_json().encode()}
    about = AboutEncoder(
        version=VERSION,
        engine=settings.engine,
        model=folder.name,
        dim=encoder.dim,
        max_pieces=tokenizer.limit,
        vocab_size=tokenizer.vocab_size,
        special=tokenizer.special,
        sha256=digests(files),
        crc32=crc32_of(files),
        made_from=made_from,
    )
    return PackedEncoder(about, files[GRAPH], files[TOKENIZER])


def build_packaged(name: str, out: Path, *, statistics: Path | None = None) -> PackedEncoder:
    """Write the files of engine `packaged` for a model with a shipped adapter, its background and statistics.

    `statistics` is a folder of `tools/build_unlabelled.py --background` (default: the files of the shipped adapter).
    """
    weights = packaged_weights(name)
    settings = TransformerSettings(adapter=SHIPPED, engine="packaged", trained_layers=0)
    packed = make_packed(find_model(name), settings, weights, made_from=weights.fingerprint)
    source, fingerprint = statistics or adapter_folder(SHIPPED, base=name) / STATISTICS, packed.about.fingerprint
    centres = BackgroundFile(source, weights.fingerprint).read()
    pairs = UnlabelledFile(source, weights.fingerprint).read()
    if centres is None or pairs is None:
        raise ModelError(f"{source}: no statistics of encoder '{name}'; install the adapter of this version of erda.")
    save_background(out, centres, fingerprint)
    save_unlabelled(out, pairs, fingerprint)
    packed.write(out)
    return packed


def packaged_weights(name: str) -> TrainedWeights:
    """The shipped adapter as engine `packaged` uses it."""
    return replace(TrainedWeights.load(SHIPPED, base=name), pooled_layers=LAYERS[name])


def get_packaged(name: str, *, say: Callable[[str], None]) -> Path:
    """Build the files of engine `packaged` in the cache folder unless they are there; return their folder."""
    folder = packaged_folder(name)
    with locked(folder, busy=f"another process builds encoder '{name}'", error=ModelError, wait=BUILD_SECONDS):
        if _read(folder, packaged_weights(name).fingerprint) is None:  # also those of an earlier version of erda
            say(f"Building the files of encoder '{name}' in {folder}. This takes a minute, once.")
            build_packaged(name, folder)
    say(f"{name}: complete ({folder}).")
    return folder
