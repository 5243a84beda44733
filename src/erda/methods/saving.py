"""Saved methods: a folder with one file, `method.safetensors`. Its metadata holds settings and relations. No pickle.

The metadata also holds the sha256 of the arrays and of itself, so damage is detected at loading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from erda import __version__
from erda.encoders.contract import Encoder
from erda.errors import ErdaError, ModelError
from erda.files import decode_sealed, is_unfinished, remove_unfinished, sealed, user_path, write_bytes
from erda.methods.base import Checkpoint, Method
from erda.types import EncoderSpec, Example, Relation

FILE, METADATA = "method.safetensors", "erda"
AGAIN = "Save the method again."


class SavedMethod(BaseModel):
    """The metadata of a saved method."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    format: Literal[3] = 3
    arrays: str  # sha256
    erda: str
    method: str
    settings: dict[str, bool | int | float | str]
    encoder: EncoderSpec
    n_tasks: int
    relations: tuple[Relation, ...]
    kept: tuple[Example, ...]
    rows: tuple[str, ...]  # names; the tensors are `rows.NAME.0`, `rows.NAME.1`, in the order of the relations
    seal: str = ""  # sha256 of all other fields (`erda.files.sealed`)


def save_method(method: Method, directory: Path) -> None:
    """Write a method to a folder; a failed or killed save leaves the earlier one intact."""
    folder = user_path(directory).resolve()
    _reject_other_files(folder)
    state = method.checkpoint()
    tensors = {f"encoder.{name}": tensor for name, tensor in state.weights.items()}
    tensors |= {f"shared.{name}": tensor for name, tensor in state.shared.items()}
    tensors |= {
        f"rows.{name}.{number}": rows[relation.id]
        for name, rows in state.rows.items()
        for number, relation in enumerate(state.relations)
    }
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    about = SavedMethod(
        arrays=_digest(arrays),
        erda=__version__,
        method=method.name,
        settings=method.settings(),
        encoder=method.encoder.spec,
        n_tasks=state.n_tasks,
        relations=state.relations,
        kept=state.kept,
        rows=tuple(state.rows),
    )
    write_bytes(folder / FILE, save(arrays, {METADATA: json.dumps(sealed(about))}))
    remove_unfinished(folder)


def _reject_other_files(folder: Path) -> None:
    """Raise if a folder holds files that no save of a method wrote."""
    with suppress(OSError, ErdaError):
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        others = {name for name in names if not is_unfinished(name)}
        if not others or (others == {FILE} and _read(folder)):
            return
    raise ModelError(f"{folder} exists and holds other files than a saved method; name another folder.")


def load_method(directory: Path, *, encoder: Encoder | None = None, **parts: Any) -> Method:
    """Load a saved method. Without `encoder`, the encoder named in the folder is built."""
    from erda.encoders import build_encoder
    from erda.methods import find_method

    folder = user_path(directory).resolve()
    about, tensors = _read(folder)
    kind = find_method(about.method)
    if encoder is None:
        encoder = build_encoder(about.encoder.name, **dict[str, Any](about.encoder.settings))
    if encoder.spec.fingerprint != about.encoder.fingerprint:
        raise ModelError(
            f"{folder} was learned with other weights of encoder '{about.encoder.name}' "
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
        raise ModelError(f"{folder} does not fit method '{about.method}' of erda {__version__} ({error!r}).") from error
    return method


def _read(folder: Path) -> tuple[SavedMethod, dict[str, np.ndarray]]:
    place = folder / FILE
    if not place.is_file():
        raise ModelError(f"{place} is missing; {folder} does not hold a saved method.")
    try:
        with safe_open(place, framework="numpy") as file:
            metadata, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{place}: cannot be read ({error}). {AGAIN}") from error
    about = decode_sealed(metadata.get(METADATA, ""), SavedMethod, place=str(place), error=ModelError, remedy=AGAIN)
    if _digest(arrays) != about.arrays:
        raise ModelError(f"{place}: was changed or damaged since it was written. {AGAIN}")
    return about, arrays


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    return hashlib.sha256(save(dict(arrays))).hexdigest()
