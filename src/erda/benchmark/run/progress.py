"""What is kept of a run while it is under way, in `OUT/METHOD/SEED/progress`, so that it can go on after any end.

    progress.json   what was asked, and the measures after each task learned so far
    method-K/       the method after task K, as `method.save` writes it
    step-K.npz      what was predicted after task K

`progress.json` is renamed into place last and names the K that counts: whatever is newer was cut short and is ignored.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from erda.benchmark.metrics import Step
from erda.benchmark.records import (
    RECORD,
    SCHEMA,
    WriteError,
    check_schema,
    read_arrays,
    read_json,
    read_record,
    write_arrays,
    write_json,
)
from erda.corpus.manifest import MANIFEST, read_manifest
from erda.errors import ModelError, RecordError, SettingsError
from erda.settings.runs import Run, filled_settings

if TYPE_CHECKING:
    from erda.methods.base import Method

FOLDER = "progress"
FILE = "progress.json"
LOCK = ".lock"
_ATTEMPTS = 20  # to lock a folder that others leave at the same moment
# What one record of an experiment must share with the others in its folder; where a run happens is no setting.
SHARED = ("dataset", "shots", "order_family", "encoder", "evaluate_on")


@dataclass(slots=True)
class Progress:
    """The tasks learned so far. `add` puts one more on the disk; what was there before stays until that is whole."""

    directory: Path
    asked: Run
    digest: str  # of the stream
    steps: list[Step] = field(default_factory=list)
    learn_seconds: list[float] = field(default_factory=list)
    predict_seconds: list[float] = field(default_factory=list)
    peak_memory_mb: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)  # what the method had to tell of each task, put together

    @classmethod
    def open(cls, run_directory: Path, asked: Run, digest: str) -> Progress:
        """What an earlier process left in the folder of this run, or a fresh start."""
        progress = cls(run_directory / FOLDER, asked, digest)
        path = progress.directory / FILE
        if not path.exists():
            return progress
        value = read_json(path)
        check_schema(path, value)
        try:
            refuse_mixing(run_directory, then=value["asked"], now=asdict(asked))
            if value["digest"] != digest:
                raise SettingsError(
                    f"{run_directory} was begun on another stream (manifests {value['digest'][:8]} there, "
                    f"{digest[:8]} now): the data changed. Choose another --out, or delete that folder."
                )
            progress.steps = [_step(step) for step in value["steps"]]
            progress.learn_seconds = list(value["learn_seconds"])
            progress.predict_seconds = list(value["predict_seconds"])
            progress.peak_memory_mb = float(value["peak_memory_mb"])
            progress.notes = dict(value["notes"])
        except (KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{path}: has an unexpected shape ({error!r}). Delete {run_directory}.") from error
        return progress

    @property
    def n_done(self) -> int:
        """How many tasks are learned and on the disk."""
        return len(self.steps)

    @property
    def method_directory(self) -> Path:
        """Where the method lies as it was after the last learned task."""
        return self.directory / f"method-{self.n_done}"

    def add(
        self,
        method: Method,
        *,
        step: Step,
        arrays: Mapping[str, np.ndarray],
        seconds: tuple[float, float],
        peak_memory_mb: float,
    ) -> None:
        """Keep one more task: the method after it, its measures and predictions, seconds of learning and predicting."""
        k = self.n_done + 1
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            method.save(self.directory / f"method-{k}")
        except (OSError, ModelError, WriteError) as error:
            raise WriteError(
                f"{self.asked.title}: task {k} was learned but cannot be kept: {error} "
                f"The {self.n_done} tasks before are kept; mend this and give the same command again."
            ) from error
        write_arrays(self.directory / f"step-{k}.npz", arrays, compress=False)
        peak = max(self.peak_memory_mb, peak_memory_mb)
        notes = joined_notes(self.notes, method.notes())
        value = {
            "schema": SCHEMA,
            "asked": asdict(self.asked),
            "digest": self.digest,
            "steps": [asdict(one) for one in (*self.steps, step)],
            "learn_seconds": [*self.learn_seconds, seconds[0]],
            "predict_seconds": [*self.predict_seconds, seconds[1]],
            "peak_memory_mb": peak,
            "notes": notes,
        }
        write_json(self.directory / FILE, value)
        old = self.method_directory
        self.steps.append(step)
        self.learn_seconds.append(seconds[0])
        self.predict_seconds.append(seconds[1])
        self.peak_memory_mb, self.notes = peak, notes
        shutil.rmtree(old, ignore_errors=True)

    def arrays(self, k: int) -> dict[str, np.ndarray]:
        """What was predicted after task `k` (1 is the first)."""
        return read_arrays(self.directory / f"step-{k}.npz")

    def discard(self) -> None:
        """Remove it all; called when the record is on the disk."""
        shutil.rmtree(self.directory, ignore_errors=True)


def joined_notes(notes: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Notes of all tasks: lists one after the other, of everything else what was said last."""
    return {
        **notes,
        **{name: [*notes.get(name, []), *one] if isinstance(one, list) else one for name, one in more.items()},
    }


def _step(value: Mapping[str, Any]) -> Step:
    names = [one.name for one in fields(Step)]
    row = {protocol: tuple(values) for protocol, values in value["row"].items()}
    return Step(**{**{name: value[name] for name in names}, "row": row, "n_test": tuple(value["n_test"])})


# -- one folder, one experiment ----------------------------------------------------------------------------------------


def refuse_mixing(directory: Path, *, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on where the folder holds a run of the same method with other settings, or another experiment."""
    same_method = then.get("method") == now.get("method")
    old, new = ({name: value.get(name) for name in SHARED} for value in (then, now))
    for kind in {*then.get("settings", {}), *now.get("settings", {})}:
        if kind != "method" or same_method:
            for side, value in ((old, then), (new, now)):
                settings = value.get("settings", {}).get(kind, {})
                if kind == "method":
                    settings = filled_settings(str(value.get("method")), settings)
                side |= {f"{kind}.{name}": one for name, one in settings.items()}
    if same_method:
        old["corpus"], new["corpus"] = _corpora(then, now)
    differences = [
        f"  {name}: {old.get(name, 'not set')} there, {new.get(name, 'not set')} now"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if differences:
        what = "\n".join(differences)
        raise SettingsError(
            f"{directory} holds results of other settings, and they are never mixed:\n{what}\n"
            "Choose another --out, or delete that folder."
        )


def _corpora(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, str]:
    """The corpora of two runs: by digest where both are known, else by the name of their folders."""
    names = [Path(value.get("corpus") or "none").name for value in (then, now)]
    before = str((then.get("notes", {}).get("corpus") or {}).get("digest", ""))
    folder = Path(now.get("corpus") or "").expanduser()
    if not before or not now.get("corpus") or not (folder / MANIFEST).exists():
        return names[0], names[1]
    digests = before, read_manifest(folder).digest
    return (
        (before, before) if before == digests[1] else (f"{names[0]} ({before[:12]})", f"{names[1]} ({digests[1][:12]})")
    )


def check_same_experiment(out: Path, asked: Run) -> None:
    """Refuse a folder that holds runs of another experiment; what cannot be read there is passed over."""
    for path in sorted([*out.glob(f"*/*/{RECORD}"), *out.glob(f"*/*/{FOLDER}/{FILE}")]):
        try:
            then = asdict(read_record(path)) if path.name == RECORD else read_json(path).get("asked", {})
        except RecordError:
            continue
        place = path.parent if path.name == RECORD else path.parent.parent
        refuse_mixing(place, then=then, now=asdict(asked))


def refuse_begun(run_directory: Path, asked: Run) -> None:
    """Refuse a folder in which the run was begun with other settings."""
    path = run_directory / FOLDER / FILE
    if path.exists():
        refuse_mixing(run_directory, then=read_json(path).get("asked", {}), now=asdict(asked))


def discard_begun(run_directory: Path) -> None:
    """Remove what an unfinished run left, once its record has come from elsewhere."""
    shutil.rmtree(run_directory / FOLDER, ignore_errors=True)


@contextmanager
def locked(run_directory: Path) -> Iterator[None]:
    """Keep other processes out of the folder of a run; the lock ends with the process, however that ends."""
    path = run_directory / LOCK
    with _lock(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # whoever opened it before sees in `_lock` that it is not the lock any more
            with suppress(OSError):  # a run that never began leaves no empty folder
                run_directory.rmdir()
                run_directory.parent.rmdir()


def _lock(path: Path) -> IO[str]:
    """The lock file, open and locked; closing it gives the lock back."""
    import fcntl

    for attempt in range(_ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        except OSError as error:
            if isinstance(error, FileNotFoundError) and attempt < _ATTEMPTS - 1:
                continue  # the folder went with the lock of another process
            raise WriteError(f"Cannot write {path.parent}: {error.strerror or error}. Choose another --out.") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise RecordError(f"{path.parent}: another process is at work on this run; wait for it.") from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # removed by whoever held it, between our opening and our locking it
    raise RecordError(f"{path.parent}: other processes begin and end work on this run all the time; wait for them.")
