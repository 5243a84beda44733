"""Checkpoints of an unfinished run in `OUT/METHOD/SEED/progress`, from which an interrupted run resumes.

    progress.json   settings of the run, measures after each learned task, sha256 of every file
    method-K/       the method after task K, written by `method.save`
    task-K.npz      predictions after task K

`progress.json` is renamed into place last, and its K is the one that counts: newer files are incomplete and ignored.
If `progress.json` or a file listed in it is damaged, the run starts over.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.benchmark.experiments import reject_mixing
from erda.benchmark.metrics import Measures
from erda.benchmark.records import RECORD, read_record
from erda.errors import ErdaError, ModelError, RecordError, SettingsError, WriteError, one_line
from erda.files import (
    LOCK,
    is_unfinished,
    locked,
    read_arrays,
    read_json,
    read_sealed,
    remove_own,
    remove_unfinished,
    sealed,
    sha256_of,
    write_arrays,
    write_json,
)
from erda.settings.runs import Run

if TYPE_CHECKING:
    from erda.methods.base import Method

FOLDER = "progress"
FILE = "progress.json"
_OWN = re.compile(r"progress\.json|task-\d+\.npz|method-\d+/(method\.json|weights-[0-9a-f]{16}\.safetensors)")
SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Learned:
    """Content of `progress.json`: the tasks learned so far."""

    asked: Run
    digest: str  # of the stream
    measures: tuple[Measures, ...] = ()
    learn_seconds: tuple[float, ...] = ()
    predict_seconds: tuple[float, ...] = ()
    peak_memory_mb: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)  # the method's notes on all tasks, joined
    files: dict[str, str] = field(default_factory=dict)  # path in the folder -> sha256
    schema: int = SCHEMA


@dataclass(slots=True)
class Progress:
    """Progress of a run on disk. `add` keeps the previous checkpoint until the new one is complete."""

    folder: Path
    learned: Learned

    @classmethod
    def open(cls, run_directory: Path, asked: Run, digest: str) -> Progress:
        """Open the progress left by an earlier process, or start fresh."""
        folder = run_directory / FOLDER
        learned = read_learned(folder)
        if learned is None:
            return cls(folder, Learned(asked, digest))
        reject_mixing(run_directory, then=learned.asked, now=asked)
        if learned.digest != digest:
            raise SettingsError(
                f"{run_directory} was started on another stream (manifests {learned.digest[:8]} there, "
                f"{digest[:8]} now): the data changed. Choose another --out, or delete that folder."
            )
        return cls(folder, learned)

    @property
    def n_done(self) -> int:
        """Number of tasks learned and saved."""
        return len(self.learned.measures)

    @property
    def method_folder(self) -> Path:
        """Folder of the method saved after the last learned task."""
        return self.folder / f"method-{self.n_done}"

    def add(
        self,
        method: Method,
        *,
        measures: Measures,
        arrays: Mapping[str, np.ndarray],
        learn_seconds: float,
        predict_seconds: float,
        peak_memory_mb: float,
    ) -> None:
        """Save one more task: the method, its measures and its predictions."""
        k, before, old = self.n_done + 1, self.learned, self.method_folder
        saved, predicted = self.folder / f"method-{k}", self.folder / f"task-{k}.npz"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            method.save(saved)
        except (OSError, ModelError, WriteError) as error:
            raise WriteError(
                f"{before.asked.title}: task {k} was learned but cannot be saved: {error} "
                f"The {self.n_done} earlier tasks are saved; fix this and repeat the same command."
            ) from error
        write_arrays(predicted, arrays, compress=False)
        new = [predicted, *(path for path in sorted(saved.rglob("*")) if path.is_file())]
        files = {name: sha256 for name, sha256 in before.files.items() if not name.startswith(f"{old.name}/")}
        files |= {path.relative_to(self.folder).as_posix(): sha256_of(path) for path in new}
        learned = replace(
            before,
            measures=(*before.measures, measures),
            learn_seconds=(*before.learn_seconds, learn_seconds),
            predict_seconds=(*before.predict_seconds, predict_seconds),
            peak_memory_mb=max(before.peak_memory_mb, peak_memory_mb),
            notes=joined_notes(before.notes, method.notes()),
            files=files,
        )
        write_json(self.folder / FILE, sealed(learned))
        self.learned = learned
        remove_own(old, lambda name: f"{old.name}/{name}" in before.files)

    def arrays(self) -> list[dict[str, np.ndarray]]:
        """Predictions after each task."""
        return [read_arrays(self.folder / f"task-{k + 1}.npz", error=RecordError) for k in range(self.n_done)]

    def discard(self) -> None:
        """Remove the folder and temporary files beside it, once the record is written; files of others stay."""
        remove_own(self.folder, lambda name: is_own(name) or name in self.learned.files)
        remove_unfinished(self.folder.parent)


def discard_leftovers(run_directory: Path) -> None:
    """Remove what a kill leaves beside the record of a finished run: its progress, its lock, temporary files."""
    with suppress(OSError, ErdaError):  # on a read-only disk, or while another process finishes the run
        if any(path.name in (FOLDER, LOCK) or is_unfinished(path.name) for path in run_directory.iterdir()):
            with locked(run_directory, busy="in use", wait=0):
                remove_unfinished(run_directory)
                if (run_directory / FOLDER).is_dir():
                    remove_own(run_directory / FOLDER, is_own)


def is_own(name: str) -> bool:
    """Whether a path in the progress folder is that of a file which a run writes there."""
    return _OWN.fullmatch(name) is not None


def joined_notes(notes: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Join the notes of all tasks: concatenate lists, keep the latest of all other values."""
    lists = {name: [*notes.get(name, []), *value] for name, value in more.items() if isinstance(value, list)}
    return {**notes, **more, **lists}


def read_learned(folder: Path) -> Learned | None:
    """Read `progress.json` and check every file listed in it; None if it is missing or, with a warning, damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        learned = read_sealed(path, Learned, error=RecordError)
        if learned.schema != SCHEMA:
            raise RecordError(f"{path}: has another version.")
        for name, sha256 in learned.files.items():
            if sha256_of(folder / name, error=RecordError) != sha256:
                raise RecordError(f"{folder / name}: damaged.")
    except RecordError as fault:
        print(one_line(f"{fault} The run starts over."), file=sys.stderr)
        return None
    return learned


def check_same_experiment(out: Path, asked: Run) -> None:
    """Reject an output folder that holds runs of another experiment; skip unreadable files."""
    for path in sorted([*out.glob(f"*/*/{RECORD}"), *out.glob(f"*/*/{FOLDER}/{FILE}")]):
        unfinished = path.name == FILE
        try:
            then = read_json(path, Learned, error=RecordError).asked if unfinished else read_record(path)
        except ErdaError:
            continue
        reject_mixing(path.parents[int(unfinished)], then=then, now=asked)


@contextmanager
def run_lock(run_directory: Path) -> Iterator[None]:
    """Lock the folder of a run against other processes; remove the folder if it stays empty."""
    try:
        with locked(run_directory, busy="another process is running it; wait until it ends", error=RecordError):
            yield
    finally:
        with suppress(OSError):
            run_directory.rmdir()
            run_directory.parent.rmdir()
