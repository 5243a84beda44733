"""A method as a folder: `method.json` (what it is) and `weights.safetensors` (what it learned). No pickle."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from erda import __version__
from erda.data.formats.jsonl import example_from_json, example_to_json
from erda.encoders.base import Encoder
from erda.errors import ErdaError, ModelError, SettingsError
from erda.learning.memory import Memory
from erda.methods.base import Method, State
from erda.types import Example, Relation

FORMAT = 1


def examples_to_json(examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Examples as plain JSON."""
    return [dict(example_to_json(example)) for example in examples]


def examples_from_json(rows: Sequence[Mapping[str, Any]]) -> tuple[Example, ...]:
    """Examples as `examples_to_json` wrote them."""
    return tuple(example_from_json(dict(row)) for row in rows)


def memory_to_json(memory: Memory) -> dict[str, list[dict[str, Any]]]:
    """A memory as plain JSON, relations in the order of learning."""
    return {relation: examples_to_json(examples) for relation, examples in memory.exemplars.items()}


def memory_from_json(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Memory:
    """A memory as `memory_to_json` wrote it."""
    return Memory({relation: examples_from_json(examples) for relation, examples in rows.items()})


def save_method(method: Method, directory: Path) -> None:
    """Write beside `directory`, then take its place: a full disk or a kill leaves the earlier save whole."""
    state = method._state()
    about = {
        "format": FORMAT,
        "erda": __version__,
        "method": method.name,
        "settings": method.settings(),
        "encoder": {
            "name": method.encoder.spec.name,
            "settings": dict(method.encoder.spec.settings),
            "fingerprint": method.encoder.spec.fingerprint,
        },
        "relations": [{"id": r.id, "name": r.name, "description": r.description} for r in method.relations],
        "n_tasks": method.n_tasks,
        "values": dict(state.values),
    }
    tensors = {f"encoder.{name}": tensor for name, tensor in method.encoder.trained_state().items()}
    tensors |= {f"method.{name}": tensor for name, tensor in state.tensors.items()}
    directory = directory.resolve()
    if directory.exists() and not _is_ours(directory):
        raise ModelError(f"{directory} exists and holds something else than a saved method; name another folder.")
    new: Path | None = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        new.chmod(0o755)
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, new / "weights.safetensors"
        )
        (new / "method.json").write_text(json.dumps(about, ensure_ascii=False, indent=1), encoding="utf-8")
        _replace(new, directory)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"Cannot save to {directory}: {error}. What was saved there before is untouched.") from error
    finally:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)


def _is_ours(directory: Path) -> bool:
    """Whether a save may take the place of `directory`: a saved method or an empty folder."""
    return directory.is_dir() and ((directory / "method.json").is_file() or not any(directory.iterdir()))


def _set_aside(directory: Path) -> Path:
    """Where an earlier save waits while a new one takes its place."""
    return directory.with_name(f".{directory.name}-old")


def _replace(new: Path, directory: Path) -> None:
    old = _set_aside(directory)
    if directory.exists():
        shutil.rmtree(old, ignore_errors=True)
        directory.replace(old)
    try:
        new.replace(directory)
    except OSError:
        if old.exists():
            old.replace(directory)
        raise
    shutil.rmtree(old, ignore_errors=True)


def load_method(directory: Path, *, encoder: Encoder | None = None, device: str = "cpu", **parts: Any) -> Method:
    """A method as it was saved; the encoder named in the folder is built unless one is handed in."""
    from erda.encoders import build_encoder
    from erda.methods import find_method

    directory = directory.resolve()
    if not directory.exists() and _set_aside(directory).exists():  # a kill between the two renames of a save
        directory = _set_aside(directory)
    about, tensors = _read(directory)
    try:
        kind = find_method(about["method"])
        spec = about["encoder"]
        if encoder is None:
            encoder = build_encoder(spec["name"], device=device, **spec["settings"])
        if encoder.spec.fingerprint != spec["fingerprint"]:
            raise ModelError(
                f"{directory} was learned over other weights of encoder '{spec['name']}' "
                f"({spec['fingerprint'][:8]}, not {encoder.spec.fingerprint[:8]})."
            )
        try:
            method = kind.from_settings(encoder, about["settings"], **parts)
        except SettingsError as error:
            raise ModelError(f"{directory / 'method.json'} is not what erda {__version__} writes: {error}") from None
        method.relations = [Relation(**relation) for relation in about["relations"]]
        method.index = {relation.id: row for row, relation in enumerate(method.relations)}
        method.n_tasks = about["n_tasks"]
        encoder.load_trained_state(_part(tensors, "encoder."))
        method._restore(State(_part(tensors, "method."), about["values"]))
    except ErdaError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{directory / 'method.json'} is not what erda {__version__} writes ({error!r}).") from error
    return method


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    about_file, weights_file = directory / "method.json", directory / "weights.safetensors"
    for path in (about_file, weights_file):
        if not path.is_file():
            raise ModelError(f"{path} is missing; {directory} does not hold a saved method.")
    try:
        about = json.loads(about_file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{about_file} is damaged: {error}.") from error
    found = about.get("format") if isinstance(about, dict) else None
    if found != FORMAT:
        raise ModelError(f"{about_file} has format {found!r}; this version reads format {FORMAT}.")
    try:
        return about, load_file(weights_file)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{weights_file} is damaged or cut short: {error}.") from error


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
