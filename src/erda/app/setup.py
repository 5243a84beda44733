"""The method and encoder of an extractor: requested or stored settings, and the objects built from them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from erda.app.state import NOTHING, Setup
from erda.encoders import BY_MODE, build_encoder, encoder_settings
from erda.encoders.contract import Encoder
from erda.encoders.onnx_encoder import packaged_names
from erda.errors import ModelError
from erda.methods import DEFAULT_METHOD, find_method
from erda.methods.base import Method
from erda.types import EncoderSpec

DEFAULT_ENCODER = "minilm"


@dataclass(frozen=True, slots=True)
class Asked:
    """The requested method and encoder; unset fields come from the store, or are defaults."""

    method: str | None = None
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    encoder: str | Encoder | None = None
    encoder_settings: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def is_met_by(self, stored: Setup) -> bool:
        """Whether the stored setup meets the request; no weights are loaded."""
        spec = stored.encoder
        own = self.encoder.spec == spec if isinstance(self.encoder, Encoder) else self.encoder in (None, spec.name)
        return (
            own
            and self.method in (None, stored.method)
            and self.method_settings.items() <= stored.settings.items()
            and self.encoder_settings.items() <= spec.settings.items()
        )


class Builder:
    """Builds methods; each encoder is loaded once, at first use."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._encoders: dict[str, Encoder] = {}
        if isinstance(asked.encoder, Encoder):
            self._encoders[_key(asked.encoder.spec)] = asked.encoder

    def setup(self, stored: Setup = NOTHING) -> Setup:
        """The requested setup, completed by the stored one and by defaults."""
        asked = self.asked
        name = asked.method or stored.method or DEFAULT_METHOD
        kind = find_method(name)
        encoder = asked.encoder if isinstance(asked.encoder, Encoder) else self._asked_encoder(stored, kind)
        self._encoders[_key(encoder.spec)] = encoder
        before = stored.settings if stored.method == name else {}
        method = kind.from_settings(encoder, {**before, **asked.method_settings})
        return Setup(name, method.settings(), encoder.spec)

    def _asked_encoder(self, stored: Setup, kind: type[Method]) -> Encoder:
        name = str(self.asked.encoder or stored.encoder.name or DEFAULT_ENCODER)
        is_stored = name == stored.encoder.name
        settings = dict[str, Any](stored.encoder.settings if is_stored else {})
        as_before = is_stored and "engine" in settings and find_method(stored.method).trains == kind.trains
        if not as_before and "trained_layers" in encoder_settings(name).model_fields:
            settings |= _engine(name, trains=kind.trains)
        return build_encoder(name, device=self.asked.device, **{**settings, **self.asked.encoder_settings})

    def blank(self, setup: Setup) -> Method:
        """Build an untrained method; a method that trains gets its own copy of the encoder."""
        kind, encoder = find_method(setup.method), self._encoder(setup.encoder)
        return kind.from_settings(deepcopy(encoder) if kind.trains else encoder, setup.settings)

    def _encoder(self, spec: EncoderSpec) -> Encoder:
        key = _key(spec)
        if key not in self._encoders:
            built = build_encoder(spec.name, device=self.asked.device, **dict[str, Any](spec.settings))
            if built.spec.fingerprint != spec.fingerprint:
                raise ModelError(
                    f"The extractor was taught over other weights of encoder '{spec.name}' ({spec.fingerprint[:8]}, "
                    f"not {built.spec.fingerprint[:8]}). Open it with relearn=True (erda teach --relearn) to teach all "
                    "its examples again."
                )
            self._encoders[key] = built
        return self._encoders[key]


def without_engine(stored: Setup) -> Setup:
    """Remove the engine from a setup that erda 0.1.0 stored: its default engine differed."""
    settings = {name: value for name, value in stored.encoder.settings.items() if name != "engine"}
    return replace(stored, encoder=replace(stored.encoder, settings=settings))


def _engine(encoder: str, *, trains: bool) -> dict[str, Any]:
    """Default settings of a transformer: PyTorch, or the packaged file if the method keeps it frozen."""
    if trains:
        return {"trained_layers": BY_MODE, "engine": "torch"}
    return {"trained_layers": 0, "engine": "packaged" if encoder in packaged_names() else "torch"}


def _key(spec: EncoderSpec) -> str:
    return f"{spec.name} {spec.fingerprint} {sorted(spec.settings.items())}"
