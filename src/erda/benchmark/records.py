"""What a run leaves behind: `OUT/METHOD/SEED/record.json` and, beside it, `predictions.npz`.

A file is written whole or not at all: to a temporary name in the same folder, flushed to the disk, then renamed.
Reading trusts nothing: half a record, a record of another version or a strange shape is a `RecordError` with the path.
"""

from __future__ import annotations

import io
import json
import math
import os
import reprlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from erda.benchmark.metrics import ALL_SEEN, CANDIDATES, PROTOCOLS, Step, forgetting
from erda.errors import RecordError
from erda.settings.runs import Run

SCHEMA = 1
RECORD = "record.json"
PREDICTIONS = "predictions.npz"
RULES = {
    ALL_SEEN: "The gold relation must score strictly higher than every other relation learned so far.",
    CANDIDATES: "The gold relation must score strictly higher than those of the example's listed relations that are "
    "already learned; where none is, the example is marked by all-seen and counted in n_fallback.",
}


class WriteError(RecordError):
    """A result that could not be written (a full disk, no permission); what was written before is untouched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Run):
    """One method on one stream: what was asked (`Run`) and what came out.

    Everything measured is a fraction. `accuracy`, `macro` and `chance` hold one value per task; `matrix[k][j]` is the
    accuracy on task j after task k (j <= k). A protocol that the dataset does not allow is None.
    """

    order: list[list[str]]  # relation ids, task by task
    relation_names: dict[str, str]
    manifest: dict[str, Any]
    encoder_spec: dict[str, Any]  # name, every setting, fingerprint of the weights it started from
    accuracy: dict[str, list[float] | None]
    macro: dict[str, list[float] | None]
    chance: dict[str, list[float] | None]
    matrix: dict[str, list[list[float]] | None]
    forgetting: dict[str, float | None]
    n_test: list[int]  # questions of each task's own test
    n_fallback: list[int]  # after each task: questions without a learned listed relation
    seconds: dict[str, list[float]]  # "learn" and "predict", per task
    peak_memory_mb: float  # of the whole process, up to the end of this run
    versions: dict[str, str]
    notes: dict[str, Any] = field(default_factory=dict)  # what the method has to tell, augmentation among it
    protocols: dict[str, str] = field(default_factory=lambda: dict(RULES))
    schema: int = SCHEMA

    @property
    def n_tasks(self) -> int:
        """How many tasks the stream had."""
        return len(self.order)

    @property
    def digest(self) -> str:
        """The fingerprint of the stream; runs may be compared pairwise only where it is the same."""
        return str(self.manifest.get("digest", ""))


def measured(steps: Sequence[Step]) -> dict[str, Any]:
    """The measured fields of a record from the measures after each task."""

    def per_task(name: str) -> dict[str, Any]:
        return {
            protocol: [getattr(step, name)[protocol] for step in steps] if protocol in steps[-1].accuracy else None
            for protocol in PROTOCOLS
        }

    matrix = {key: rows and [list(row) for row in rows] for key, rows in per_task("row").items()}
    return {
        "accuracy": per_task("accuracy"),
        "macro": per_task("macro"),
        "chance": per_task("chance"),
        "matrix": matrix,
        "forgetting": {key: forgetting(rows) if rows else None for key, rows in matrix.items()},
        "n_test": list(steps[-1].n_test),
        "n_fallback": [step.n_fallback for step in steps],
    }


# -- writing -----------------------------------------------------------------------------------------------------------


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old one or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(
            f"Cannot write {path}: {reason}. Earlier results are intact; mend this and give the same command again."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write plain values as JSON; numbers that are no numbers are refused rather than written as `NaN`."""
    write_whole(path, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, compress: bool = True) -> None:
    """Write arrays as `.npz`."""
    file = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(file, **arrays)  # type: ignore[arg-type]  # names are free
    write_whole(path, file.getvalue())


def write_record(directory: Path, record: Record) -> Path:
    """Write `record.json` into the folder of a run."""
    path = directory / RECORD
    write_json(path, asdict(record))
    return path


# -- reading -----------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or a `RecordError` that says what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: is not UTF-8 text (byte {error.start}). Delete it and run again.") from error
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{path}:{error.lineno}: is not whole JSON ({error.msg}); it was cut short or edited. "
            "Delete it and run again."
        ) from error
    if not isinstance(value, dict):
        raise RecordError(f"{path}: expected a JSON object, got {type(value).__name__}.")
    return value


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays from an `.npz` file; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path}: is damaged ({error}). Delete its folder and run again.") from error


def check_schema(path: Path, value: Mapping[str, Any]) -> None:
    """Refuse what another version wrote."""
    found = value.get("schema")
    if found != SCHEMA:
        raise RecordError(
            f"{path}: has version {found!r} of the record format, this erda reads version {SCHEMA}. "
            "Read it with the erda that wrote it, or run again into another folder."
        )


def read_record(path: Path) -> Record:
    """A record from its file or from the folder it lies in."""
    path = path / RECORD if path.is_dir() else path
    value = read_json(path)
    check_schema(path, value)
    names = [one.name for one in fields(Record)]
    missing = [name for name in names if name not in value]
    if missing:
        raise RecordError(f"{path}: lacks {', '.join(missing)}. Delete it and run again.")
    faults = [fault for name, kind in _kinds().items() for fault in _misfits(value[name], kind, name)]
    record = Record(**{name: value[name] for name in names})
    fault = faults[0] if faults else _fault_of(record)
    if fault:
        raise RecordError(f"{path}: has an unexpected shape ({fault}). Delete it and run again.")
    return record


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Record)


def _misfits(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Where and how a value is not of the kind that an annotation names: a plain type, dict, list or union of them."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(value, dict):
        for key, one in value.items():
            yield from _misfits(one, inner[1], f"{where}.{key}")
        return
    if origin is list and isinstance(value, list):
        for number, one in enumerate(value):
            yield from _misfits(one, inner[0], f"{where}[{number}]")
        return
    if origin is UnionType:
        fits = any(not list(_misfits(value, one, where)) for one in inner)
    elif kind in (int, float):
        fits = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        fits = fits and math.isfinite(value)
    else:
        fits = kind is Any or (isinstance(kind, type) and isinstance(value, kind))
    if not fits:
        expected = str(kind) if origin else kind.__name__
        yield f"{where}: expected {expected}, got {reprlib.repr(value)}"


def _fault_of(record: Record) -> str:
    """What is wrong with the keys or lengths of a record whose values are of the right kinds; "" where nothing is."""
    measures: dict[str, Mapping[str, Any]] = {
        name: getattr(record, name) for name in ("accuracy", "macro", "chance", "matrix", "forgetting")
    }
    needed = {**dict.fromkeys(measures, PROTOCOLS), "seconds": ("learn", "predict")}
    for name, keys in needed.items():
        missing = [key for key in keys if key not in getattr(record, name)]
        if missing:
            return f"{name} lacks {', '.join(missing)}"
    n_tasks = record.n_tasks
    lists: dict[str, Any] = {"n_test": record.n_test, "n_fallback": record.n_fallback}
    lists |= {f"seconds.{name}": values for name, values in record.seconds.items()}
    by_task = ("accuracy", "macro", "chance", "matrix")
    lists |= {f"{name}.{protocol}": measures[name][protocol] for protocol in PROTOCOLS for name in by_task}
    for name, values in lists.items():
        if values is not None and (len(values) != n_tasks or not n_tasks):
            return f"{name} does not hold one value for each of its {n_tasks} tasks"
    for protocol in PROTOCOLS:
        rows = record.matrix[protocol] or ()
        if any(len(row) != k for k, row in enumerate(rows, start=1)):
            return f"matrix.{protocol} does not hold one value for each of the tasks seen"
        absent = [name for name in by_task if measures[name][protocol] is None]
        if absent and len(absent) < len(by_task):
            return f"{', '.join(absent)} of {protocol} is null and the others are not"
    return "" if min(record.n_test) > 0 else "n_test: a task without a question"


@dataclass(frozen=True, slots=True)
class Records:
    """All records under a folder, and what could not be read there."""

    directory: Path
    records: tuple[Record, ...]
    paths: tuple[Path, ...]
    faults: tuple[str, ...]


def read_records(directory: Path) -> Records:
    """Every `record.json` under `directory`; a bad one is a fault, the rest still counts."""
    if not directory.is_dir():
        raise RecordError(f"{directory}: there is no such folder. Name the --out folder of `erda run`.")
    records, paths, faults = [], [], []
    for path in sorted(directory.rglob(RECORD)):
        try:
            records.append(read_record(path))
            paths.append(path)
        except RecordError as error:
            faults.append(str(error))
    if not records:
        hint = "\n" + "\n".join(faults) if faults else " Unfinished runs have none yet: `erda run` goes on with them."
        raise RecordError(f"{directory}: no {RECORD} could be read under this folder.{hint}")
    return Records(directory, tuple(records), tuple(paths), tuple(faults))


# -- per-example predictions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What was predicted for each test example, `predictions.npz`. Integers point into `relations`.

    `best` [n_tasks, n_examples]: best relation after each task, -1 where the example's task was not learned yet.
    `right`: protocol -> bool [n_tasks, n_examples], by the rules of the record (a tie is a miss).
    `scores` [n_examples, n_relations]: after the last task, float16.
    """

    relations: tuple[str, ...]
    examples: tuple[str, ...]  # ids
    task: np.ndarray  # [n_examples]: the task whose test it belongs to
    gold: np.ndarray  # [n_examples]
    best: np.ndarray
    right: dict[str, np.ndarray]
    scores: np.ndarray


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Write `predictions.npz`."""
    arrays = {
        "relations": np.array(outcomes.relations, dtype=np.str_),
        "examples": np.array(outcomes.examples, dtype=np.str_),
        "task": outcomes.task.astype(np.int32),
        "gold": outcomes.gold.astype(np.int32),
        "best": outcomes.best.astype(np.int32),
        "scores": outcomes.scores,
    }
    write_arrays(path, {**arrays, **{f"right_{protocol}": right for protocol, right in outcomes.right.items()}})


def read_outcomes(path: Path) -> Outcomes:
    """Read `predictions.npz` from its path or from the folder of its run."""
    path = path / PREDICTIONS if path.is_dir() else path
    arrays = read_arrays(path)
    try:
        return Outcomes(
            relations=tuple(arrays["relations"].tolist()),
            examples=tuple(arrays["examples"].tolist()),
            task=arrays["task"],
            gold=arrays["gold"],
            best=arrays["best"],
            right={name: arrays[f"right_{name}"] for name in PROTOCOLS if f"right_{name}" in arrays},
            scores=arrays["scores"],
        )
    except KeyError as error:
        raise RecordError(f"{path}: lacks {error.args[0]}. Delete its folder and run again.") from error


def half_precision(scores: np.ndarray) -> np.ndarray:
    """Scores as float16, kept inside its range."""
    limit = float(np.finfo(np.float16).max)
    return np.clip(scores, -limit, limit).astype(np.float16)
