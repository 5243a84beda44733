"""The folder of a training: whose it is, what is being trained, and states to go on from.

`checkpoints/run.json` says what is being trained. A state is `checkpoint-N.safetensors` and, written after it,
`checkpoint-N.json` with its sha256; one that is damaged or not whole is passed over.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from erda.encoders.adapter import KINDS, SETTINGS_FILE, TrainedSettings
from erda.errors import DataError, ErdaError, SettingsError
from erda.fields import Settings
from erda.files import read_json, read_sealed, sealed, sha256_of, verify_sha256, write_bytes, write_json

CHECKPOINTS = "checkpoints"
RUN_FILE = "run.json"
REPORT_FILE = "training.json"
KEPT = 2
NOT_OURS = "Name another folder for --out, or remove it yourself."


class Unfinished(Settings):
    """What `run.json` in a folder of checkpoints says: whose they are, and what is being trained."""

    made_by: Literal["erda corpus train"] = "erda corpus train"
    version: int = 3  # of the checkpoints beside it
    settings: dict[str, Any]
    pairs: str
    encoder: str = ""  # fingerprint of the pretrained weights
    n_processes: int = 1  # each gets a share of every batch


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `checkpoint-N.json` says: the number of steps done, the losses so far, and the sha256 of the tensors."""

    step: int
    losses: list[tuple[int, float]]
    sha256: str


def refuse_foreign(out: Path) -> None:
    """Refuse a folder that holds what is not erda's in the places where a training writes or removes."""
    checkpoints = out / CHECKPOINTS
    if (checkpoints / RUN_FILE).is_file():
        read_json(checkpoints / RUN_FILE, Unfinished, remedy=NOT_OURS)
    elif checkpoints.exists():
        raise DataError(f"{checkpoints}: was not made by `erda corpus train`. {NOT_OURS}")
    elif (out / SETTINGS_FILE).exists():
        read_json(out / SETTINGS_FILE, TrainedSettings, remedy=NOT_OURS)
    else:
        names = (*(f"{kind}.safetensors" for kind in KINDS), REPORT_FILE)
        taken = [name for name in names if (out / name).exists()]
        if taken:
            raise DataError(f"{out}: holds {', '.join(taken)}, but no similarity model of erda's. {NOT_OURS}")


def last_checkpoint(folder: Path, run: Unfinished, *, resume: bool) -> Checkpoint | None:
    """Where to go on from; None at the beginning. Leaves a note of what is being trained."""
    refuse_foreign(folder.parent)
    note = folder / RUN_FILE
    if note.is_file():
        before = read_json(note, Unfinished, remedy=NOT_OURS)
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        elif before != run:
            raise SettingsError(
                f"{folder} holds an unfinished training with another encoder, other settings or pairs; finish it with "
                "the same ones, or give it up with --no-resume."
            )
        else:
            return _last_whole(folder)
    write_json(note, run)
    return None


def save_checkpoint(folder: Path, step: int, losses: list[tuple[int, float]], tensors: Mapping[str, Tensor]) -> None:
    """Write a state; of those before it, the latest stays."""
    from safetensors.torch import save

    path = folder / f"checkpoint-{step}.safetensors"
    write_bytes(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))
    write_json(path.with_suffix(".json"), sealed(Checkpoint(step, losses, sha256_of(path))))
    for old in _steps(folder)[:-KEPT]:
        for ending in (".json", ".safetensors"):
            (folder / f"checkpoint-{old}{ending}").unlink(missing_ok=True)


def load_tensors(folder: Path, found: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(folder / f"checkpoint-{found.step}.safetensors")


def _last_whole(folder: Path) -> Checkpoint | None:
    """The latest checkpoint that is as it was written; one that is not is passed over with a word."""
    for step in reversed(_steps(folder)):
        path = folder / f"checkpoint-{step}.json"
        with suppress(ErdaError):
            found = read_sealed(path, Checkpoint)
            verify_sha256(path.with_suffix(".safetensors"), found.sha256)
            if found.step == step:
                return found
        print(f"{path.stem}: is damaged or not whole; training goes on from what comes before it.", file=sys.stderr)
    return None


def _steps(folder: Path) -> list[int]:
    names = (re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name) for path in folder.iterdir())
    return sorted(int(name[1]) for name in names if name)
