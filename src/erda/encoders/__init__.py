"""The encoders by name. Any other name is a model folder or a name on the hub."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from erda.encoders.base import Encoder
from erda.errors import SettingsError, unknown_name

if TYPE_CHECKING:
    from erda.encoders.frozen import FrozenCache

SETTING_TYPES = {"bool": bool, "int": int, "float": float, "str": str}


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """A line of the table: who builds the encoder, and a sentence for people."""

    build: str  # module:function, imported when the encoder is built
    about: str


ENCODERS: dict[str, EncoderEntry] = {
    "bilstm": EncoderEntry("bilstm:build_bilstm", "BiLSTM over frozen GloVe 6B 50-d, as in the paper"),
    "minilm": EncoderEntry("transformer:build_transformer", "MiniLM-L6 (22M) from the registry package"),
    "mpnet": EncoderEntry("transformer:build_transformer", "MPNet-base (110M) from registry packages"),
}


def _builder(name: str) -> Callable[..., Encoder]:
    from importlib import import_module

    entry = ENCODERS.get(name, ENCODERS["minilm"])
    module, function = entry.build.split(":")
    found: Callable[..., Encoder] = getattr(import_module(f"erda.encoders.{module}"), function)
    return found


def encoder_settings(name: str) -> dict[str, type]:
    """Names and types of an encoder's settings."""
    parameters = inspect.signature(_builder(name)).parameters
    given = {"name", "seed", "device"}
    return {
        p.name: SETTING_TYPES[str(p.annotation)]
        for p in parameters.values()
        if str(p.annotation) in SETTING_TYPES and p.name not in given
    }


def build_encoder(
    name: str, *, seed: int = 0, device: str = "cpu", cache: FrozenCache | None = None, **settings: object
) -> Encoder:
    """The encoder of that name: `bilstm`, `minilm`, `mpnet`, a model folder or a name on the hub.

    `cache` keeps what frozen layers compute; hand the same one to all encoders of an experiment.
    """
    known = encoder_settings(name)
    wrong = [
        unknown_name(f"setting of encoder '{name}'", setting, known) for setting in settings if setting not in known
    ]
    if wrong:
        raise SettingsError("\n".join(wrong))
    build = _builder(name)
    if "cache" in inspect.signature(build).parameters:
        settings["cache"] = cache
    return build(name, seed=seed, device=device, **settings)
