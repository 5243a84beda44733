"""Trained weights of a similarity model over a pretrained one: a low-rank adapter, or all weights.

A low-rank adapter adds `scale * up @ down` to the weight of every linear layer, with `up` [out, rank] and `down`
[rank, in], and replaces the four rows of the entity marks. It is stored in half precision with the fingerprint of the
pretrained model it belongs to, and merged into that model when it is loaded, so it costs nothing afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from erda.encoders.layers import LayeredModel
from erda.encoders.weights import ModelFolder, check_safetensors, find_model
from erda.errors import ModelError

KINDS = ("adapter", "full")
MARKS = "marks"
ORIGIN_FILE = "origin.json"


class LowRank(nn.Module):
    """`weight -> weight + scale * up @ down`; starts as no change, since `up` starts at zero."""

    def __init__(self, weight: Tensor, *, rank: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        n_out, n_in = weight.shape
        bound = n_in**-0.5
        start = torch.rand(rank, n_in, generator=generator) * (2 * bound) - bound
        self.scale = scale
        self.up = nn.Parameter(torch.zeros(n_out, rank))
        self.down = nn.Parameter(start)

    def forward(self, weight: Tensor) -> Tensor:
        """The adapted weight, [out, in]; in float32 even where the rest is computed in half precision."""
        with torch.autocast(weight.device.type, enabled=False):
            return weight + self.scale * (self.up @ self.down)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedWeights:
    """What training changed. `kind` is `adapter` (`tensors`: `<layer>.up`, `<layer>.down`, `marks`) or `full`."""

    kind: str
    tensors: Mapping[str, Tensor]
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ModelError(f"trained weights of kind '{self.kind}': expected {' or '.join(KINDS)}.")

    @property
    def digest(self) -> str:
        """Sha256 of kind, scale and every tensor."""
        digest = hashlib.sha256(f"{self.kind} {self.scale!r}\n".encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()

    @torch.no_grad()
    def apply(self, model: LayeredModel) -> None:
        """Merge into a freshly loaded model; a ModelError where the tensors are not those of such a model."""
        own = dict(model.named_parameters())
        rows = {MARKS: MARKS} if model.marks is not None else {}
        if self.kind == "full":
            _must_fit(self.tensors, {name: tuple(own[name].shape) for name in own})
            for name, parameter in own.items():
                parameter.copy_(self.tensors[name])
            return
        expected: dict[str, tuple[int, ...]] = {name: tuple(own[name].shape) for name in rows}
        linears = dict(_linears(model))
        rank = next((tensor.shape[0] for name, tensor in self.tensors.items() if name.endswith(".down")), 0)
        for name, linear in linears.items():
            expected |= {f"{name}.up": (linear.out_features, rank), f"{name}.down": (rank, linear.in_features)}
        _must_fit(self.tensors, expected)
        for name in rows:
            own[name].copy_(self.tensors[name])
        for name, linear in linears.items():
            up, down = self.tensors[f"{name}.up"].float(), self.tensors[f"{name}.down"].float()
            linear.weight += (self.scale * (up @ down)).to(linear.weight.device)

    def save(self, path: Path, *, base: str) -> None:
        """Write a safetensors file; `base` is the fingerprint of the pretrained model."""
        from safetensors.torch import save_file

        metadata = {"format": "pt", "kind": self.kind, "scale": repr(self.scale), "base": base}
        part = path.with_name(path.name + ".part")
        save_file({name: tensor.contiguous().cpu() for name, tensor in self.tensors.items()}, part, metadata)
        part.chmod(0o644)
        part.replace(path)

    @classmethod
    def load(cls, path: Path, *, base: str) -> TrainedWeights:
        """Read a safetensors file made for the pretrained model of fingerprint `base`."""
        from safetensors import safe_open

        check_safetensors(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("base") != base:
                raise ModelError(
                    f"{path} was trained over other weights: expected base {base[:12]}, "
                    f"got {str(metadata.get('base'))[:12]}."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        return cls(metadata.get("kind", ""), tensors, float(metadata.get("scale", "nan")))


def add_adapter(model: LayeredModel, *, rank: int, scale: float = 1.0, seed: int = 0) -> None:
    """Freeze a model and put a trainable low-rank change on every linear layer; the marks are trained too."""
    from torch.nn.utils import parametrize

    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for _, linear in list(_linears(model)):
        change = LowRank(linear.weight, rank=rank, scale=scale, generator=generator)
        parametrize.register_parametrization(linear, "weight", change)
    if model.marks is not None:
        model.marks.requires_grad_(True)


def trained_weights(model: LayeredModel) -> TrainedWeights:
    """What was trained, taken from a model: its adapter in half precision, or all of its weights."""
    changes = [(name, module) for name, module in model.named_modules() if isinstance(module, LowRank)]
    if not changes:
        return TrainedWeights("full", {name: value.detach().clone() for name, value in model.named_parameters()})
    tensors: dict[str, Tensor] = {}
    for name, change in changes:
        linear = name.removesuffix(".parametrizations.weight.0")
        tensors |= {f"{linear}.up": change.up.detach().half(), f"{linear}.down": change.down.detach().half()}
    if model.marks is not None:
        tensors[MARKS] = model.marks.detach().half()
    return TrainedWeights("adapter", tensors, changes[0][1].scale)


def origin(folder: ModelFolder) -> tuple[str, str]:
    """Name and fingerprint of the model that a folder holds; a copy made by `half_copy` answers for its original."""
    path = folder.path / ORIGIN_FILE
    if not path.is_file():
        return folder.name, folder.fingerprint
    try:
        row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return str(row["name"]), str(row["fingerprint"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is damaged: {error!r}. Make the copy again.") from error


def half_copy(name: str, out: Path) -> ModelFolder:
    """A copy of a pretrained model in half precision, to carry it to another machine: half the size.

    Adapters trained over the copy are for the original: they differ by what rounding to 11 bits does.
    """
    from shutil import copyfile

    from safetensors.torch import load_file, save_file

    folder = find_model(name)
    source = folder.path / "model.safetensors"
    if not source.is_file():
        raise ModelError(f"{folder.path} has no model.safetensors; only such models can be copied.")
    out.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.half() if value.is_floating_point() else value for key, value in load_file(source).items()}
    save_file(tensors, out / source.name, {"format": "pt"})
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (folder.path / file).is_file():
            copyfile(folder.path / file, out / file)
    own_name, fingerprint = origin(folder)
    (out / ORIGIN_FILE).write_text(json.dumps({"name": own_name, "fingerprint": fingerprint}), encoding="utf-8")
    return find_model(out)


def _linears(model: LayeredModel) -> Iterator[tuple[str, nn.Linear]]:
    """Every linear layer with its name."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))


def _must_fit(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    wrong = [name for name, shape in expected.items() if name not in tensors or tuple(tensors[name].shape) != shape]
    wrong += sorted(set(tensors) - set(expected))
    if wrong:
        raise ModelError(f"Trained weights do not fit the model: {len(wrong)} tensors, the first is {wrong[0]}.")
