"""Saved methods: a folder with `method.json` (settings, relations) and `weights-*.safetensors` (arrays). No pickle.

`method.json` holds the sha256 of the weights and of itself, so damage is detected at loading.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.numpy import load, save

from erda import __version__
from erda.encoders.contract import Encoder
from erda.errors import ErdaError, ModelError, WriteError
from erda.files import (
    inside,
    is_unfinished,
    read_bytes,
    read_json,
    read_sealed,
    sealed,
    user_path,
    verify_sha256,
    write_bytes,
    write_json,
)
from erda.methods.base import Checkpoint, Method
from erda.types import EncoderSpec, Example, Relation

ABOUT = "method.json"
WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
DAMAGED = "Save the method again."


class SavedMethod(BaseModel):
    """The content of `method.json`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    format: Literal[2] = 2
    files: dict[str, str]  # name of the weights -> sha256
    erda: str
    method: str
    settings: dict[str, bool | int | float | str]
    encoder: EncoderSpec
    n_tasks: int
    relations: tuple[Relation, ...]
    kept: tuple[Example, ...]
    rows: tuple[str, ...]  # names; the tensors are `rows.NAME.0`, `rows.NAME.1`, in the order of the relations
    seal: str = ""  # sha256 of all other fields (`erda.files.sealed`)


# -- writing -----------------------------------------------------------------------------------------------------------


def save_method(method: Method, directory: Path) -> None:
    """Write new weights beside the old, then `method.json`, which names them: a kill leaves the earlier save intact."""
    directory = user_path(directory).resolve()
    _reject_other_files(directory)
    try:
        _write(method, directory)
    except (OSError, WriteError) as error:
        reason = error.__cause__ if isinstance(error, WriteError) else error
        raise WriteError(f"Cannot save to {directory}: {reason}. The earlier save is intact.") from error
    finally:  # remove earlier weights and leftovers of an interrupted save
        with suppress(OSError, ErdaError):
            named = read_json(directory / ABOUT, SavedMethod).files if (directory / ABOUT).exists() else {}
            for path in directory.iterdir():
                if _is_part(path.name) and path.name not in named:
                    path.unlink(missing_ok=True)


def _write(method: Method, folder: Path) -> None:
    state = method.checkpoint()
    tensors = {f"encoder.{name}": tensor for name, tensor in state.weights.items()}
    tensors |= {f"shared.{name}": tensor for name, tensor in state.shared.items()}
    tensors |= {
        f"rows.{name}.{number}": rows[relation.id]
        for name, rows in state.rows.items()
        for number, relation in enumerate(state.relations)
    }
    content = save({name: np.asarray(array, order="C") for name, array in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    weights = f"weights-{digest[:16]}.safetensors"
    write_bytes(folder / weights, content)
    about = SavedMethod(
        files={weights: digest},
        erda=__version__,
        method=method.name,
        settings=method.settings(),
        encoder=method.encoder.spec,
        n_tasks=state.n_tasks,
        relations=state.relations,
        kept=state.kept,
        rows=tuple(state.rows),
    )
    write_json(folder / ABOUT, sealed(about))


def _reject_other_files(directory: Path) -> None:
    """Raise if a folder holds files that no save of a method wrote."""
    try:
        others = {path.name for path in directory.iterdir() if not _is_part(path.name)} if directory.exists() else set()
        if others == {ABOUT}:
            read_json(directory / ABOUT, SavedMethod)
        if others <= {ABOUT}:
            return
    except (OSError, ErdaError):
        pass
    raise ModelError(f"{directory} exists and holds other files than a saved method; name another folder.")


def _is_part(name: str) -> bool:
    return is_unfinished(name) or WEIGHTS.fullmatch(name) is not None


# -- reading -----------------------------------------------------------------------------------------------------------


def load_method(directory: Path, *, encoder: Encoder | None = None, device: str = "cpu", **parts: Any) -> Method:
    """Load a saved method. Without `encoder`, the encoder named in the folder is built."""
    from erda.encoders import build_encoder
    from erda.methods import find_method

    directory = user_path(directory).resolve()
    about, tensors = _read(directory)
    kind = find_method(about.method)
    if encoder is None:
        encoder = build_encoder(about.encoder.name, device=device, **dict[str, Any](about.encoder.settings))
    if encoder.spec.fingerprint != about.encoder.fingerprint:
        raise ModelError(
            f"{directory} was learned with other weights of encoder '{about.encoder.name}' "
            f"({about.encoder.fingerprint[:8]}, not {encoder.spec.fingerprint[:8]})."
        )
    method = kind.from_settings(encoder, about.settings, **parts)
    shared, weights = (
        {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
        for start in ("shared.", "encoder.")
    )
    try:
        rows = {
            name: {relation.id: tensors[f"rows.{name}.{i}"] for i, relation in enumerate(about.relations)}
            for name in about.rows
        }
        method.restore(Checkpoint(about.method, about.n_tasks, about.relations, about.kept, rows, shared, weights))
    except (KeyError, RuntimeError, ValueError) as error:  # intact, but the method stores other arrays today
        raise ModelError(
            f"{directory} does not fit method '{about.method}' of erda {__version__} ({error!r})."
        ) from error
    return method


def _read(directory: Path) -> tuple[SavedMethod, dict[str, np.ndarray]]:
    place = directory / ABOUT
    if not place.is_file():
        raise ModelError(f"{place} is missing; {directory} does not hold a saved method.")
    about = read_sealed(place, SavedMethod, error=ModelError, remedy=DAMAGED)
    ((name, digest),) = about.files.items()
    weights = inside(directory, name, error=ModelError)
    verify_sha256(weights, digest, error=ModelError, remedy=DAMAGED)
    try:
        return about, load(read_bytes(weights, error=ModelError))
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{weights}: cannot be read ({error}). {DAMAGED}") from error
