"""Encoders by name. Any other name is a model folder or a model on the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from erda.encoders.devices import check_device
from erda.encoders.settings import AdaptedSettings, BiLstmSettings, TransformerSettings
from erda.fields import Settings, checked_settings
from erda.registry import Registry, load_object

if TYPE_CHECKING:
    from erda.encoders.base import Encoder
    from erda.encoders.frozen import FrozenCache


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """A row of the encoder table: settings and a one-line description."""

    settings: type[Settings]
    about: str
    is_pretrained: bool = True  # False: random weights, useless until a method trains them
    build: str = ""  # factory in another package: "module:function", called with (settings, seed=..., device=...)


ENCODERS: Registry[EncoderEntry] = Registry(
    "erda.encoders",
    {
        "bilstm": EncoderEntry(
            BiLstmSettings, "BiLSTM over frozen GloVe 6B 50-d, as in the paper", is_pretrained=False
        ),
        "minilm": EncoderEntry(AdaptedSettings, "MiniLM-L6 (22M) with the adapter of this project"),
        "mpnet": EncoderEntry(AdaptedSettings, "MPNet-base (110M) with the adapter of erda-mpnet"),
    },
)


def encoder_settings(name: str) -> type[Settings]:
    """Settings model of an encoder."""
    return ENCODERS[name].settings if name in ENCODERS else TransformerSettings


def build_encoder(
    name: str, *, seed: int = 0, device: str = "cpu", cache: FrozenCache | None = None, **settings: object
) -> Encoder:
    """Build an encoder by name: `bilstm`, `minilm`, `mpnet`, a model folder or a model on the Hugging Face hub.

    `settings` are the fields of `encoder_settings(name)`; all invalid values are reported at once. `cache` caches the
    output of frozen layers; share one cache among all encoders of an experiment.
    """
    checked = checked_settings(encoder_settings(name), settings)
    check_device(device)
    if name in ENCODERS and ENCODERS[name].build:
        make: Any = load_object(ENCODERS[name].build)
        return make(checked, seed=seed, device=device)
    if isinstance(checked, BiLstmSettings):
        from erda.encoders.bilstm import BiLstmEncoder

        return BiLstmEncoder.build(checked, seed=seed, device=device)
    assert isinstance(checked, TransformerSettings)
    kept = None if cache is None or cache.max_bytes == 0 else cache.vectors(f"{name} {checked.model_dump_json()}")
    if checked.engine == "packaged":
        from erda.encoders.onnx_encoder import open_packaged

        return open_packaged(name, checked, kept=kept)
    from erda.encoders.adapter import TrainedWeights
    from erda.encoders.background import BackgroundFile
    from erda.encoders.transformer import TransformerEncoder
    from erda.encoders.weights import adapter_folder, find_model, origin

    folder = find_model(name)
    base = origin(folder).name
    weights = TrainedWeights.load(checked.adapter, base=base) if checked.adapter else None
    if weights is not None and checked.pooled_layers:
        weights = replace(weights, pooled_layers=checked.pooled_layers)
    encoder: Encoder
    if checked.engine == "torch":
        encoder = TransformerEncoder(folder, checked, weights=weights, seed=seed, cache=cache).to(device)
    else:
        from erda.encoders.onnx_build import open_onnx

        encoder = open_onnx(folder, checked, weights=weights, device=device, kept=kept)
    if weights is not None:
        encoder.background_file = BackgroundFile(adapter_folder(checked.adapter, base=base), weights.fingerprint)
    return encoder
