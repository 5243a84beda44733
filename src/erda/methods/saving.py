"""A method as a folder: `method.json` (what it is) and `weights.safetensors` (what it learned). No pickle.

`method.json` names its files with their sha256 and has one of its own, so that what is loaded is what was saved.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from erda import __version__
from erda.encoders.base import Encoder, EncoderSpec
from erda.errors import ErdaError, ModelError, WriteError
from erda.files import decode_json, read_bytes, sha256_of, whole_file, write_json
from erda.methods.base import Checkpoint, Method
from erda.types import Example, Relation

FORMAT = 2
ABOUT, WEIGHTS = "method.json", "weights.safetensors"


class Marker(BaseModel):
    """What says that a folder is a saved method, of whatever format, and which files are its own."""

    format: int
    files: dict[str, str] = {}  # name -> sha256


class SavedMethod(Marker):
    """`method.json`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    erda: str
    method: str
    settings: dict[str, bool | int | float | str]
    encoder: EncoderSpec
    n_tasks: int
    relations: tuple[Relation, ...]
    kept: tuple[Example, ...]
    rows: tuple[str, ...]  # names: the tensors are `rows.NAME.0`, `rows.NAME.1`, in the order of the relations
    digest: str = ""  # sha256 of all the rest

    def own_digest(self) -> str:
        """What `digest` must be."""
        rest = self.model_dump(mode="json", exclude={"digest"})
        return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# -- writing -----------------------------------------------------------------------------------------------------------


def save_method(method: Method, directory: Path) -> None:
    """Write beside `directory`, then take its place: a full disk or a kill leaves the earlier save whole."""
    directory = directory.resolve()
    for place in (directory, _set_aside(directory)):
        if place.exists() and not _is_ours(place):
            raise ModelError(f"{place} exists and holds something else than a saved method; name another folder.")
    new: Path | None = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        new.chmod(0o755)
        _write(method, new)
        _replace(new, directory)
        for left in directory.parent.glob(f".{directory.name}-*"):  # what a kill left behind
            if {path.name for path in left.iterdir()} <= {ABOUT, WEIGHTS}:
                shutil.rmtree(left, ignore_errors=True)
    except (OSError, WriteError, SafetensorError) as error:
        reason = error.__cause__ if isinstance(error, WriteError) else error
        raise WriteError(f"Cannot save to {directory}: {reason}. What was saved there before is untouched.") from error
    finally:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)


def _write(method: Method, folder: Path) -> None:
    state = method.checkpoint()
    tensors = {f"encoder.{name}": tensor for name, tensor in state.weights.items()}
    tensors |= {f"shared.{name}": tensor for name, tensor in state.shared.items()}
    tensors |= {
        f"rows.{name}.{number}": rows[relation.id]
        for name, rows in state.rows.items()
        for number, relation in enumerate(state.relations)
    }
    with whole_file(folder / WEIGHTS) as path:
        save_file(
            {name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}, path
        )
    about = SavedMethod(
        format=FORMAT,
        files={WEIGHTS: sha256_of(folder / WEIGHTS)},
        erda=__version__,
        method=method.name,
        settings=method.settings(),
        encoder=method.encoder.spec,
        n_tasks=state.n_tasks,
        relations=state.relations,
        kept=state.kept,
        rows=tuple(state.rows),
    )
    write_json(folder / ABOUT, about.model_copy(update={"digest": about.own_digest()}))


def _is_ours(directory: Path) -> bool:
    """Whether a save may take the place of `directory`: an empty folder, or a saved method and nothing beside it."""
    try:
        names = {path.name for path in directory.iterdir()}
        marker = decode_json((directory / ABOUT).read_bytes(), Marker, place=ABOUT) if names else None
    except (OSError, ErdaError):
        return False
    return marker is None or (bool(marker.files) and names == {ABOUT, *marker.files})


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


# -- reading -----------------------------------------------------------------------------------------------------------


def load_method(directory: Path, *, encoder: Encoder | None = None, device: str = "cpu", **parts: Any) -> Method:
    """A method as it was saved; the encoder named in the folder is built unless one is handed in."""
    from erda.encoders import build_encoder
    from erda.methods import find_method

    directory = directory.resolve()
    if not directory.exists() and _set_aside(directory).exists():  # a kill between the two renames of a save
        directory = _set_aside(directory)
    about, tensors = _read(directory)
    kind = find_method(about.method)
    if encoder is None:
        encoder = build_encoder(about.encoder.name, device=device, **dict[str, Any](about.encoder.settings))
    if encoder.spec.fingerprint != about.encoder.fingerprint:
        raise ModelError(
            f"{directory} was learned over other weights of encoder '{about.encoder.name}' "
            f"({about.encoder.fingerprint[:8]}, not {encoder.spec.fingerprint[:8]})."
        )
    method = kind.from_settings(encoder, about.settings, **parts)
    try:
        rows = {
            name: {relation.id: tensors[f"rows.{name}.{i}"] for i, relation in enumerate(about.relations)}
            for name in about.rows
        }
        shared, weights = _part(tensors, "shared."), _part(tensors, "encoder.")
        method.restore(Checkpoint(about.method, about.n_tasks, about.relations, about.kept, rows, shared, weights))
    except (KeyError, RuntimeError, ValueError) as error:  # whole, but of a method that keeps other things today
        raise ModelError(
            f"{directory} does not fit method '{about.method}' of erda {__version__} ({error!r})."
        ) from error
    return method


def _read(directory: Path) -> tuple[SavedMethod, dict[str, Tensor]]:
    for path in (directory / ABOUT, directory / WEIGHTS):
        if not path.is_file():
            raise ModelError(f"{path} is missing; {directory} does not hold a saved method.")
    place, damaged = directory / ABOUT, "It is damaged or was changed; save the method again."
    content = read_bytes(place, error=ModelError)
    found = decode_json(content, Marker, place=str(place), error=ModelError, remedy=damaged).format
    if found != FORMAT:
        older = " of an older version" if found < FORMAT else ""
        raise ModelError(
            f"{place} has format {found}{older}; this version reads format {FORMAT}. Learn and save again."
        )
    about = decode_json(content, SavedMethod, place=str(place), error=ModelError, remedy=damaged)
    if about.digest != about.own_digest():
        raise ModelError(f"{place}: is not what was saved. {damaged}")
    if about.files.get(WEIGHTS) != sha256_of(directory / WEIGHTS, error=ModelError):
        raise ModelError(f"{directory / WEIGHTS}: is not what was saved. {damaged}")
    try:
        return about, load_file(directory / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{directory / WEIGHTS}: cannot be read ({error}). {damaged}") from error


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
