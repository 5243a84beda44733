"""The folder of a training: its ownership, and the checkpoint to resume from.

`checkpoints/run.json` describes the unfinished training. `checkpoints/checkpoint.npz` is the latest checkpoint; the
archive's checksums detect damage, and a damaged checkpoint restarts the training.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from erda.encoders.adapter import KINDS, SETTINGS_FILE, TrainedSettings
from erda.errors import DataError, SettingsError, one_line
from erda.fields import Settings
from erda.files import read_arrays, read_json, remove_own, write_arrays, write_json

CHECKPOINTS = "checkpoints"
RUN_FILE = "run.json"
REPORT_FILE = "training.json"
NOT_OURS = "Use another folder for --out, or remove it yourself."
_FILE = "checkpoint.npz"
_LOSSES = "losses"  # [n, 2]: step, loss
_STEP = "step"


class UnfinishedTraining(Settings):
    """The content of `run.json`: the command that wrote the file, and the training."""

    made_by: Literal["erda corpus train"] = "erda corpus train"
    version: int = 5  # of the checkpoint
    settings: dict[str, Any]
    pairs: str
    encoder: str = ""  # fingerprint of the pretrained weights


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A checkpoint: the number of finished steps, losses as (step, loss), and tensors by name."""

    step: int
    losses: list[tuple[int, float]]
    tensors: Mapping[str, Tensor]


def refuse_foreign(out: Path) -> None:
    """Reject a folder where a training would overwrite or remove files that erda did not write."""
    checkpoints = out / CHECKPOINTS
    if (checkpoints / RUN_FILE).is_file():
        read_json(checkpoints / RUN_FILE, UnfinishedTraining, remedy=NOT_OURS)
    elif checkpoints.exists():
        raise DataError(f"{checkpoints}: not written by `erda corpus train`. {NOT_OURS}")
    elif (out / SETTINGS_FILE).exists():
        read_json(out / SETTINGS_FILE, TrainedSettings, remedy=NOT_OURS)
    else:
        names = (*(f"{kind}.safetensors" for kind in KINDS), REPORT_FILE)
        taken = [name for name in names if (out / name).exists()]
        if taken:
            raise DataError(f"{out}: contains {', '.join(taken)}, but no similarity model of erda. {NOT_OURS}")


def begin_training(folder: Path, run: UnfinishedTraining, *, resume: bool) -> bool:
    """Write `run.json`, or verify that it describes this training; return whether there is a checkpoint."""
    refuse_foreign(folder.parent)
    note = folder / RUN_FILE
    if note.is_file():
        if not resume:
            discard_training(folder)
        elif read_json(note, UnfinishedTraining, remedy=NOT_OURS) != run:
            raise SettingsError(
                f"{folder}: an unfinished training with another encoder, other settings or other pairs. Finish it with "
                "the same command as before, or discard it with --no-resume."
            )
    write_json(note, run)
    if not (folder / _FILE).is_file():
        return False
    try:
        load_checkpoint(folder)
    except (DataError, KeyError):
        print(one_line(f"{folder / _FILE}: damaged; training starts from the beginning."), file=sys.stderr)
        return False
    return True


def discard_training(folder: Path) -> None:
    """Remove the checkpoint and then `run.json`, which proves ownership; other files stay."""
    remove_own(folder, lambda name: name == _FILE)
    remove_own(folder, lambda name: name == RUN_FILE)


def save_checkpoint(folder: Path, state: TrainingState) -> None:
    """Replace the checkpoint atomically."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in state.tensors.items()}
    losses = np.array(state.losses, np.float64).reshape(-1, 2)
    write_arrays(folder / _FILE, {_STEP: np.array(state.step), _LOSSES: losses, **arrays}, compress=False)


def load_checkpoint(folder: Path) -> TrainingState:
    """Read the checkpoint."""
    arrays = read_arrays(folder / _FILE)
    step, losses = int(arrays.pop(_STEP)), [(int(at), float(loss)) for at, loss in arrays.pop(_LOSSES)]
    return TrainingState(step, losses, {name: torch.from_numpy(array) for name, array in arrays.items()})
