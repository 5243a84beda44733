"""Encoders by name, with their settings. Any other name is a model folder or a model on the Hugging Face hub.

Settings and devices are validated before PyTorch is loaded. Sizes have an upper bound, so an impossible size is
rejected with a message, not by the memory allocator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from erda.errors import SettingsError
from erda.fields import Number, Settings, Share, Weight, checked_settings
from erda.registry import Registry, load_object

if TYPE_CHECKING:
    from erda.encoders.contract import Encoder
    from erda.encoders.frozen import FrozenCache

Mode = Literal["paper", "markers", "levitated", "starts"]
PooledLayers = Annotated[int, Field(ge=1, le=1000)]
BY_MODE = -2  # trained_layers: the default of the mode
ALL = -1  # trained_layers: all layers and the embeddings
_DEVICES = re.compile(r"cpu|cuda(:(?P<number>\d+))?")


class BiLstmSettings(Settings):
    """Settings of the BiLSTM. `vectors` is the path of a GloVe text file; empty: GloVe 6B 50-d from its package.

    `reads` is `sentence` (all tokens, as in the paper) or `span` (from the first entity to the end of the second).
    """

    hidden_size: Annotated[int, Field(ge=1, le=4096)] = 100
    dropout: Share = 0.0
    vectors: str = ""
    reads: Literal["sentence", "span"] = "sentence"


class TransformerSettings(Settings):
    """Settings of a pretrained transformer.

    Mode `markers` puts new mark tokens around the entities and concatenates the states of the two start marks (2 x
    hidden; followed by a linear layer only if `projection` is set). It trains all layers by default. Mode `paper` marks
    entities with `#` and `@` and passes the [CLS] state through a trained linear layer of width `projection` (0: the
    model's width). It trains the last layer by default. Mode `levitated` is `markers` with the marks after the
    sentence: they share the positions of their entities, and no word reads them, so one pass reads many pairs. Mode
    `starts` does without the end marks.
    `trained_layers` counts from the top: -1 is all layers and the embeddings, -2 the default of the mode.
    `max_pieces` 0 is the limit of the model, `learning_rate` 0 the default of the mode.
    `engine` is `torch`, or ONNX Runtime for a frozen model on a CPU, built from the weights: `onnx` (float32) or
    `onnx-int8`.
    `adapter` is `shipped` (for `minilm` and `mpnet`), a folder written by `erda corpus train`, or empty for the
    pretrained weights alone. It is trained in one mode, `markers` if shipped, with a limit on word pieces.
    `pooled_layers` is the number of last layers whose states at the marks are averaged; 0 is the adapter's own number.
    """

    mode: Mode = "markers"
    trained_layers: Annotated[int, Field(ge=BY_MODE, le=1000)] = BY_MODE
    projection: Annotated[int, Field(ge=0, le=16384)] = 0
    dropout: Share = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    max_pieces: Number = 0
    learning_rate: Weight = 0.0
    adapter: str = ""
    pooled_layers: Annotated[int, Field(ge=0, le=1000)] = 0
    engine: Literal["torch", "onnx", "onnx-int8"] = "torch"

    @model_validator(mode="after")
    def _reject_adapter_in_mode_paper(self) -> TransformerSettings:
        if self.adapter and self.mode == "paper":
            raise ValueError("mode 'paper' cannot use an adapter: adapters are trained in mode 'markers'.")
        if self.pooled_layers and not self.adapter:
            raise ValueError("pooled_layers: the pretrained weights alone read one layer; name an adapter.")
        return self


class AdaptedSettings(TransformerSettings):
    """Settings of a pretrained transformer with a shipped adapter, the default except in mode `paper`."""

    adapter: str = "shipped"

    @model_validator(mode="before")
    @classmethod
    def _default_adapter(cls, given: Any) -> Any:
        return {"adapter": "", **given} if isinstance(given, dict) and given.get("mode") == "paper" else given


class PackagedSettings(Settings):
    """An encoder in one file has no settings: it is frozen, in int8, and runs on a CPU."""


def device_kind(device: str) -> str:
    """Return `cpu` or `cuda`, or reject the name. Does not check that the device exists."""
    if not _DEVICES.fullmatch(device):
        raise SettingsError(f"device: unknown device '{device}'. Known: cpu, cuda, cuda:0, cuda:1, ...")
    return device.partition(":")[0]


def check_device(device: str) -> None:
    """Reject an unknown device, and a GPU that this machine does not have."""
    if device_kind(device) == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise SettingsError(f"device: PyTorch finds no CUDA device for '{device}'. Use --device cpu.")
    found, n_devices = _DEVICES.fullmatch(device), torch.cuda.device_count()
    if found and int(found["number"] or 0) >= n_devices:
        raise SettingsError(f"device: no '{device}'; this machine has cuda:0 to cuda:{n_devices - 1}.")


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """A row of the encoder table: settings and a one-line description."""

    settings: type[Settings]
    about: str
    build: str = ""  # factory in another package: "module:function", called with (settings, seed=..., device=...)


ENCODERS: Registry[EncoderEntry] = Registry(
    "erda.encoders",
    {
        "bilstm": EncoderEntry(BiLstmSettings, "BiLSTM over frozen GloVe 6B 50-d, as in the paper"),
        "open": EncoderEntry(PackagedSettings, "MiniLM-L6 (22M) trained on labelled relations: for extractors"),
        "open-mpnet": EncoderEntry(PackagedSettings, "MPNet-base (110M) trained likewise: erda data get open-mpnet"),
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
    """Build an encoder by name: one of `ENCODERS`, a model folder or a model on the Hugging Face hub.

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
    if isinstance(checked, PackagedSettings):
        from erda.encoders.onnx_encoder import open_packaged

        return open_packaged(name, cache=cache)
    assert isinstance(checked, TransformerSettings)
    from erda.encoders.adapter import adapter_of
    from erda.encoders.contract import UnlabelledFile
    from erda.encoders.transformer import TransformerEncoder
    from erda.encoders.weights import adapter_folder, find_model, graph_builder

    folder = find_model(name)
    weights = adapter_of(folder, checked)
    encoder: Encoder
    if checked.engine == "torch":
        encoder = TransformerEncoder(folder, checked, weights=weights, seed=seed, cache=cache).to(device)
    else:
        encoder = graph_builder().open_onnx(folder, checked, weights=weights, device=device, cache=cache)
    if weights is not None:
        place = adapter_folder(checked.adapter, base=weights.base.name)
        encoder.unlabelled_file = UnlabelledFile(place, weights.fingerprint)
    return encoder
