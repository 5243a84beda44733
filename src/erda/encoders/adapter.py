"""Weights trained over a pretrained model by `erda corpus train`: a low-rank adapter, or all weights.

A low-rank adapter adds `scale * up @ down` to the weight of every linear layer, with `up` [out, rank] and `down`
[rank, in], and replaces the four rows of the entity marks. Its file is in half precision and names the fingerprint of
its pretrained model. Loading merges the adapter into the model, so it adds no cost to a forward pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from erda.encoders import Mode, PooledLayers, TransformerSettings
from erda.encoders.layers import LayeredModel
from erda.encoders.weights import (
    DEFAULT_BASE,
    SHIPPED,
    ModelFolder,
    Origin,
    adapter_folder,
    check_safetensors,
    origin,
    write_tensors,
)
from erda.errors import ModelError, SettingsError
from erda.fields import Count
from erda.files import inside, read_json, sha256_of, verify_sha256, write_json

SETTINGS_FILE = "similarity.json"
VERSION = 1
KINDS = ("adapter", "full")
MARKS = "marks"
SHARED = ("base", "max_pieces", "pooled_layers", "mode", "trained_on")  # fields of weights and of their settings
AGAIN = "Train or copy the model again."


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Name and checksum of the file with the tensors."""

    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TrainedSettings:
    """Content of `similarity.json`."""

    version: int
    base: Origin
    weights: StoredWeights
    max_pieces: Count
    fingerprint: str
    pooled_layers: PooledLayers = 1
    mode: Mode = "markers"
    trained_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ValueError(f"has version {self.version}; this erda reads version {VERSION}.")


@dataclass(frozen=True, slots=True, eq=False)
class TrainedWeights:
    """Trained tensors. `kind` is `adapter` (`tensors`: `<layer>.up`, `<layer>.down`, `marks`) or `full`.

    `base` is the pretrained model, `max_pieces` the length limit during training. `pooled_layers` is the number of last
    layers whose states make a vector.
    """

    kind: str
    tensors: Mapping[str, Tensor]
    base: Origin
    max_pieces: int
    scale: float = 1.0
    pooled_layers: PooledLayers = 1
    mode: Mode = "markers"
    trained_on: tuple[str, ...] = ()  # Wikidata ids of the relations that the training read labels of

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ModelError(f"trained weights of kind '{self.kind}': expected {' or '.join(KINDS)}.")

    @classmethod
    def fresh(
        cls, model: LayeredModel, *, base: Origin, max_pieces: int, rank: int, scale: float = 1.0, seed: int = 0
    ) -> TrainedWeights:
        """Initial weights of a training run, in float32: an adapter that changes nothing, or (rank 0) all weights."""
        own = {name: value.detach().clone() for name, value in model.named_parameters()}
        if not rank:
            words = next(name for name, value in model.named_parameters() if value.shape[0] == model.vocab_size)
            return cls("full", {name: value for name, value in own.items() if name != words}, base, max_pieces)
        tensors = {MARKS: own[MARKS]} if MARKS in own else {}
        generator = torch.Generator().manual_seed(seed)
        for name, linear in _linears(model):
            down = torch.rand(rank, linear.in_features, generator=generator) * 2 - 1
            tensors |= {f"{name}.up": torch.zeros(linear.out_features, rank)}
            tensors |= {f"{name}.down": down * linear.in_features**-0.5}
        return cls("adapter", tensors, base, max_pieces, scale)

    def after(self, before: TrainedWeights) -> TrainedWeights:
        """Start a fresh adapter as `before`: its first rows are those of `before`, the others change nothing."""
        tensors = dict(self.tensors) | {MARKS: before.tensors[MARKS].float()}
        n = before.rank
        if before.kind != "adapter" or n > self.rank:
            raise ModelError(f"start: expected an adapter of rank {self.rank} or less.")
        for name, tensor in self.tensors.items():
            if name.endswith(".up"):
                tensors[name] = torch.cat([before.tensors[name].float() * before.scale / self.scale, tensor[:, n:]], 1)
            elif name.endswith(".down"):
                tensors[name] = torch.cat([before.tensors[name].float(), tensor[n:]])
        return replace(self, tensors=tensors)

    @property
    def digest(self) -> str:
        """Sha256 of kind, scale and every tensor."""
        digest = hashlib.sha256(f"{self.kind} {self.scale!r}\n".encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Sha256 of what determines the vectors: pretrained and trained weights, `max_pieces` and `pooled_layers`."""
        return fingerprint_of(self.base, self.digest, self.max_pieces, self.pooled_layers, self.mode)

    def check_base(self, folder: ModelFolder) -> None:
        """Raise a ModelError if these weights were trained over another model than that of `folder`."""
        found = origin(folder)
        if found.fingerprint != self.base.fingerprint:
            raise ModelError(
                f"The adapter was trained over '{self.base.name}' (weights {self.base.fingerprint[:12]}), "
                f"not over '{found.name}' (weights {found.fingerprint[:12]})."
            )

    def check_fit(self, model: LayeredModel) -> None:
        """Raise a ModelError if names or shapes of the tensors do not match the model."""
        shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
        expected = {name: shape for name, shape in shapes.items() if shape[0] != model.vocab_size}
        if self.kind == "adapter":
            expected = {MARKS: expected[MARKS]} if MARKS in expected else {}
            for name, linear in _linears(model):
                expected[f"{name}.up"] = (linear.out_features, self.rank)
                expected[f"{name}.down"] = (self.rank, linear.in_features)
        found = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        wrong = [name for name, shape in expected.items() if found.get(name) != shape]
        wrong += sorted(set(found) - set(expected))
        if wrong:
            raise ModelError(f"Trained weights do not fit the model: {len(wrong)} tensors, first {wrong[0]}.")

    @property
    def rank(self) -> int:
        """Rank of the adapter; 0 for kind `full`."""
        downs = (tensor.shape[0] for name, tensor in self.tensors.items() if name.endswith(".down"))
        return next(downs, 0) if self.kind == "adapter" else 0

    def merged(self, model: LayeredModel) -> dict[str, Tensor]:
        """All parameters of a freshly loaded model with the trained tensors merged in; gradients flow to `tensors`."""
        own: dict[str, Tensor] = dict(model.named_parameters())
        if self.kind == "full":
            return own | dict(self.tensors)
        if MARKS in own:
            own[MARKS] = self.tensors[MARKS]
        for name, _ in _linears(model):
            up, down = (self.tensors[f"{name}.{part}"].to(own[f"{name}.weight"]) for part in ("up", "down"))
            own[f"{name}.weight"] = own[f"{name}.weight"] + self.scale * (up @ down)
        return own

    @torch.no_grad()
    def apply(self, model: LayeredModel) -> None:
        """Merge into a freshly loaded model in place; raise a ModelError if the tensors do not match it."""
        self.check_fit(model)
        for name, value in self.merged(model).items():
            model.get_parameter(name).copy_(value)

    def save(self, folder: Path) -> None:
        """Write tensors and settings to a folder."""
        path = folder / f"{self.kind}.safetensors"
        metadata = {"format": "pt", "kind": self.kind, "scale": repr(self.scale), "base": self.base.fingerprint}
        write_tensors(path, {name: tensor.contiguous().cpu() for name, tensor in self.tensors.items()}, metadata)
        stored, shared = StoredWeights(path.name, sha256_of(path)), {name: getattr(self, name) for name in SHARED}
        settings = TrainedSettings(version=VERSION, weights=stored, fingerprint=self.fingerprint, **shared)
        write_json(folder / SETTINGS_FILE, settings)

    @classmethod
    def load(cls, name: str | Path, *, base: str = DEFAULT_BASE) -> TrainedWeights:
        """Load the shipped weights of a pretrained model (`shipped`), or a folder written by `save`."""
        from safetensors import safe_open

        folder = adapter_folder(name, base=base)
        path = folder / SETTINGS_FILE
        if not path.is_file():
            hint = "reinstall erda" if name == SHIPPED else "expected 'shipped' or a folder of `erda corpus train`"
            raise ModelError(f"No adapter at {folder} ({SETTINGS_FILE} is missing): {hint}.")
        saved = read_json(path, TrainedSettings, error=ModelError, remedy=AGAIN)
        file = inside(folder, saved.weights.file, error=ModelError)
        verify_sha256(file, saved.weights.sha256, error=ModelError, remedy=AGAIN)
        check_safetensors(file)
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
        try:
            scale = float(about.get("scale", ""))
        except ValueError:
            raise ModelError(f"{file}: scale is not a number. {AGAIN}") from None
        shared = {name: getattr(saved, name) for name in SHARED}
        found = cls(kind=about.get("kind", ""), tensors=tensors, scale=scale, **shared)
        if found.fingerprint != saved.fingerprint or about.get("base") != saved.base.fingerprint:
            raise ModelError(f"{path}: does not belong to {file.name}. {AGAIN}")
        return found


def adapter_of(folder: ModelFolder, settings: TransformerSettings) -> TrainedWeights | None:
    """Load the adapter that the settings of an encoder name, to read as many layers as they say."""
    if not settings.adapter:
        return None
    found = TrainedWeights.load(settings.adapter, base=origin(folder).name)
    if found.mode != settings.mode:
        raise SettingsError(f"mode: the adapter was trained in mode '{found.mode}', not '{settings.mode}'.")
    return replace(found, pooled_layers=settings.pooled_layers or found.pooled_layers)


def fingerprint_of(
    base: Origin, digest: str, max_pieces: int, pooled_layers: PooledLayers = 1, mode: Mode = "markers"
) -> str:
    """Fingerprint that a vector index stores; `digest` is that of the trained weights, or `untrained`."""
    parts = [str(VERSION), base.fingerprint, digest, str(max_pieces)]
    if pooled_layers > 1:
        parts.append(str(pooled_layers))
    if mode != "markers":
        parts.append(mode)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _linears(model: LayeredModel) -> Iterator[tuple[str, nn.Linear]]:
    """Linear layers with their names."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))
