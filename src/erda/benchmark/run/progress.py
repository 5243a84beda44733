"""What is kept of a run while it is under way, in `OUT/METHOD/SEED/progress`, so that it can go on after any end.

    progress.json   what was asked, the measures after each task learned so far, the sha256 of every file
    method-K/       the method after task K, as `method.save` writes it
    task-K.npz      what was predicted after task K

`progress.json` is renamed into place last and names the K that counts: whatever is newer was cut short and is ignored.
Where it or a file that it names is damaged, the run begins anew.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.benchmark.experiments import refuse_mixing
from erda.benchmark.metrics import Measures
from erda.benchmark.records import RECORD, read_record
from erda.errors import ErdaError, ModelError, RecordError, SettingsError, WriteError
from erda.files import locked, read_arrays, read_json, read_sealed, sealed, sha256_of, write_arrays, write_json
from erda.settings.runs import Run

if TYPE_CHECKING:
    from erda.methods.base import Method

FOLDER = "progress"
FILE = "progress.json"
SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Learned:
    """`progress.json`: the tasks learned so far."""

    asked: Run
    digest: str  # of the stream
    measures: tuple[Measures, ...] = ()
    learn_seconds: tuple[float, ...] = ()
    predict_seconds: tuple[float, ...] = ()
    peak_memory_mb: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)  # what the method had to tell of each task, put together
    files: dict[str, str] = field(default_factory=dict)  # path in the folder -> sha256
    schema: int = SCHEMA


@dataclass(slots=True)
class Progress:
    """The progress of a run. `add` puts one more task on the disk; what was there before stays until that is whole."""

    folder: Path
    learned: Learned

    @classmethod
    def open(cls, run_directory: Path, asked: Run, digest: str) -> Progress:
        """What an earlier process left in the folder of this run, or a fresh start."""
        folder = run_directory / FOLDER
        learned = read_learned(folder)
        if learned is None:
            return cls(folder, Learned(asked, digest))
        refuse_mixing(run_directory, then=learned.asked, now=asked)
        if learned.digest != digest:
            raise SettingsError(
                f"{run_directory} was begun on another stream (manifests {learned.digest[:8]} there, "
                f"{digest[:8]} now): the data changed. Choose another --out, or delete that folder."
            )
        return cls(folder, learned)

    @property
    def n_done(self) -> int:
        """How many tasks are learned and on the disk."""
        return len(self.learned.measures)

    @property
    def method_folder(self) -> Path:
        """Where the method lies as it was after the last learned task."""
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
        """Keep one more task: the method after it, its measures and what it predicted."""
        k, before, old = self.n_done + 1, self.learned, self.method_folder
        saved, predicted = self.folder / f"method-{k}", self.folder / f"task-{k}.npz"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            method.save(saved)
        except (OSError, ModelError, WriteError) as error:
            raise WriteError(
                f"{before.asked.title}: task {k} was learned but cannot be kept: {error} "
                f"The {self.n_done} tasks before are kept; mend this and give the same command again."
            ) from error
        write_arrays(predicted, arrays, compress=False)
        new = [predicted, *(path for path in sorted(saved.rglob("*")) if path.is_file())]
        files = {name: one for name, one in before.files.items() if not name.startswith(f"{old.name}/")}
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
        shutil.rmtree(old, ignore_errors=True)

    def arrays(self) -> list[dict[str, np.ndarray]]:
        """What was predicted after each task."""
        return [read_arrays(self.folder / f"task-{k + 1}.npz", error=RecordError) for k in range(self.n_done)]

    def discard(self) -> None:
        """Remove it all; called when the record is on the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)


def joined_notes(notes: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Notes of all tasks: lists one after the other, of everything else what was said last."""
    lists = {name: [*notes.get(name, []), *one] for name, one in more.items() if isinstance(one, list)}
    return {**notes, **more, **lists}


def read_learned(folder: Path) -> Learned | None:
    """What `progress.json` says, checked with every file that it names; None, and a line on stderr, for a damaged one.

    None also where there is none.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        learned = read_sealed(path, Learned, error=RecordError)
        if learned.schema != SCHEMA:
            raise RecordError(f"{path}: is of another version.")
        for name, sha256 in learned.files.items():
            if sha256_of(folder / name, error=RecordError) != sha256:
                raise RecordError(f"{folder / name}: is damaged.")
    except RecordError as fault:
        print(f"{fault} The run begins anew.", file=sys.stderr)
        return None
    return learned


def check_same_experiment(out: Path, asked: Run) -> None:
    """Refuse a folder that holds runs of another experiment; what cannot be read there is passed over."""
    for path in sorted([*out.glob(f"*/*/{RECORD}"), *out.glob(f"*/*/{FOLDER}/{FILE}")]):
        begun = path.name == FILE
        try:
            then = read_json(path, Learned, error=RecordError).asked if begun else read_record(path)
        except ErdaError:
            continue
        refuse_mixing(path.parents[int(begun)], then=then, now=asked)


@contextmanager
def run_lock(run_directory: Path) -> Iterator[None]:
    """Keep other processes out of the folder of a run; a run that never began leaves no empty folder."""
    try:
        with locked(run_directory, busy="another process is at work on this run; wait for it", error=RecordError):
            yield
    finally:
        with suppress(OSError):
            run_directory.rmdir()
            run_directory.parent.rmdir()
