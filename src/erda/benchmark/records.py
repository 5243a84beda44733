"""Files of a finished run: `OUT/METHOD/SEED/record.json` and `predictions.npz`.

A record is sealed with a digest of its content and holds the sha256 of its predictions. A truncated or changed record,
one of another version, or one beside the predictions of another run raises a `RecordError` that names its path.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from erda.benchmark.metrics import ALL_SEEN, CANDIDATES, PROTOCOLS, Measures, forgetting
from erda.errors import RecordError
from erda.fields import Fraction, Similarity, Weight
from erda.files import decode_json, decode_sealed, read_arrays, read_bytes, sealed, sha256_of, write_arrays, write_json
from erda.settings.runs import Run

SCHEMA = 1
TIE = 255  # in packed predictions
MOST = 10**12  # examples of a test set
Number = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
RECORD = "record.json"
PREDICTIONS = "predictions.npz"
AGAIN = "Delete its folder and run again."
DELETE_IT = "Delete it and run again."
RULES = {
    ALL_SEEN: "The gold relation must score strictly higher than every other relation learned so far.",
    CANDIDATES: "The gold relation must score strictly higher than those of the example's listed relations that are "
    "already learned; where none is, the example is marked by all-seen and counted in n_fallback.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Run):
    """One method on one stream: the requested `Run` and its results.

    All measures are fractions. `accuracy`, `macro` and `chance` hold one value per task; `matrix[k][j]` is the accuracy
    on task j after task k (j <= k). A protocol that the dataset does not support is None.
    """

    order: list[list[str]]  # relation ids, task by task
    relation_names: dict[str, str]
    manifest: dict[str, Any]
    encoder_spec: dict[str, Any]  # name, all settings, fingerprint of the initial weights
    accuracy: dict[str, list[Fraction] | None]
    macro: dict[str, list[Fraction] | None]
    chance: dict[str, list[Fraction] | None]
    matrix: dict[str, list[list[Fraction]] | None]
    forgetting: dict[str, Similarity | None]
    n_test: list[Count]  # number of test examples of each task
    n_fallback: list[Number]  # after each task: examples without a learned listed relation
    seconds: dict[str, list[Weight]]  # "learn" and "predict", per task
    peak_memory_mb: Weight  # of the process, until the end of this run
    versions: dict[str, str]
    # protocol -> relation -> right predictions for its test examples, after its own task and each later one
    relation_right: dict[str, dict[str, list[Number]]] = field(default_factory=dict)
    relation_tests: dict[str, Count] = field(default_factory=dict)  # number of test examples of each relation
    notes: dict[str, Any] = field(default_factory=dict)  # of the method, for example on augmentation
    predictions_sha256: str = ""  # of the `predictions.npz` of the same run; "" in older records
    packed: dict[str, str] = field(default_factory=dict)  # `pack_predictions`; {} in older records
    protocols: dict[str, str] = field(default_factory=lambda: dict(RULES))
    schema: int = SCHEMA

    @property
    def n_tasks(self) -> int:
        """Number of tasks of the stream."""
        return len(self.order)

    @property
    def digest(self) -> str:
        """Fingerprint of the stream; only runs with the same one may be paired."""
        return str(self.manifest.get("digest", ""))

    @property
    def total_seconds(self) -> float:
        """Seconds of learning and prediction."""
        return sum(map(sum, self.seconds.values()))

    def after(self, measure: str, protocol: str, k: int) -> float | None:
        """`accuracy`, `macro` or `chance` after task `k` (-1: the last); None if the protocol was not measured."""
        values = getattr(self, measure)[protocol]
        return None if values is None else values[k]


def measured(measures: Sequence[Measures]) -> dict[str, Any]:
    """Measured fields of a record, from the measures after each task."""

    def per_task(name: str) -> dict[str, Any]:
        return {
            protocol: [getattr(one, name)[protocol] for one in measures] if protocol in measures[-1].accuracy else None
            for protocol in PROTOCOLS
        }

    matrix = {key: rows and [list(row) for row in rows] for key, rows in per_task("row").items()}
    return {
        "accuracy": per_task("accuracy"),
        "macro": per_task("macro"),
        "chance": per_task("chance"),
        "matrix": matrix,
        "forgetting": {key: forgetting(rows) if rows else None for key, rows in matrix.items()},
        "n_test": list(measures[-1].n_test),
        "n_fallback": [one.n_fallback for one in measures],
    }


def relation_counts(found: TestPredictions) -> dict[str, Any]:
    """Fields of a record that count right predictions per relation: `relation_right` and `relation_tests`."""
    right: dict[str, dict[str, list[int]]] = {protocol: {} for protocol in found.right}
    tests: dict[str, int] = {}
    for index in np.unique(found.gold).tolist():
        of_it, name = found.gold == index, found.relations[index]
        first = int(found.task[of_it].min())
        tests[name] = int(of_it.sum())
        for protocol, rows in found.right.items():
            right[protocol][name] = rows[first:, of_it].sum(axis=1).tolist()
    return {"relation_right": right, "relation_tests": tests}


def pack_predictions(found: TestPredictions, order: Sequence[Sequence[str]]) -> dict[str, str]:
    """Pack gold relations ("gold") and predictions after the last task (by protocol), one byte per test example.

    A byte indexes the relations of `order`, task by task; `TIE` is a tie with the gold relation, which is a miss.
    """
    index = {name: i for i, name in enumerate(name for task in order for name in task)}
    if len(index) > TIE:
        return {}
    byte_of = np.array([*(index[name] for name in found.relations), TIE], dtype=np.uint8)  # [-1] is TIE
    rows = {"gold": found.gold, **found.winner}
    return {name: b64encode(zlib.compress(byte_of[row].tobytes(), 9)).decode() for name, row in rows.items()}


def unpack_predictions(record: Record) -> dict[str, np.ndarray]:
    """Unpack `record.packed`: "gold" and each protocol -> uint8 [n_examples]; {} if the record has none."""
    n_relations = sum(map(len, record.order))
    found: dict[str, np.ndarray] = {}
    for name, text in record.packed.items():
        try:
            content = zlib.decompressobj().decompress(b64decode(text, validate=True), sum(record.n_test) + 1)
        except (ValueError, zlib.error):
            raise RecordError(f"{record.title}: its packed predictions ({name}) are damaged.") from None
        found[name] = np.frombuffer(content, dtype=np.uint8)
        valid = (found[name] < n_relations) | ((found[name] == TIE) & (name != "gold"))
        if len(content) != sum(record.n_test) or not valid.all():
            raise RecordError(f"{record.title}: its packed predictions ({name}) do not fit its test examples.")
    if found and "gold" not in found:
        raise RecordError(f"{record.title}: its packed predictions lack the gold relations.")
    return found


def write_record(folder: Path, record: Record) -> None:
    """Write `record.json`, sealed, so that a bit flip on disk cannot change a table."""
    write_json(folder / RECORD, sealed(record))


@dataclass(frozen=True, slots=True)
class _Head:
    """Fields of every version of the record format."""

    schema: Any = None
    seal: str = ""


def read_record(path: Path) -> Record:
    """Read a record from its file or from the folder of its run, and check its seal."""
    path = path / RECORD if path.is_dir() else path
    content = read_bytes(path, error=RecordError)
    about: dict[str, Any] = {"place": str(path), "error": RecordError, "remedy": DELETE_IT}
    head = decode_json(content, _Head, **about)
    if head.schema != SCHEMA:
        raise RecordError(
            f"{path}: record format {head.schema!r}; this version of erda reads format {SCHEMA}. "
            "Read it with the version that wrote it, or run again with another --out."
        )
    if not head.seal:
        raise RecordError(f"{path}: has no seal, so it was changed after `erda run` wrote it. {DELETE_IT}")
    return decode_sealed(content, Record, **about)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record and the folder it was read from; None for a record that is not on disk."""

    record: Record
    folder: Path | None = None

    def predictions(self) -> TestPredictions:
        """Read the predictions beside the record; a valid file of another run raises."""
        if self.folder is None or not (self.folder / PREDICTIONS).exists():
            raise RecordError(f"{self.folder or self.record.title} has no {PREDICTIONS}.")
        found = read_predictions(self.folder)
        same = {*found.relations} == {name for task in self.record.order for name in task}
        if self.record.relation_tests:  # what is left to compare where a record has no sha256
            counts = relation_counts(found)
            same = same and all(getattr(self.record, name) == counts[name] for name in counts)
        if self.fault() or not same:
            raise RecordError(self._not_its_own())
        return found

    def fault(self) -> str:
        """Return why the predictions beside the record are not its own; "" if they are, or if there are none."""
        path, expected = (self.folder or Path()) / PREDICTIONS, self.record.predictions_sha256
        if self.folder is None or not expected or not path.is_file() or sha256_of(path, error=RecordError) == expected:
            return ""
        return self._not_its_own()

    def _not_its_own(self) -> str:
        return f"{self.folder}: {RECORD} and {PREDICTIONS} are not of the same run. {AGAIN}"


@dataclass(frozen=True, slots=True)
class Records:
    """All records under a folder; faults of unreadable ones, and of predictions that are not those of their record."""

    directory: Path
    found: tuple[FoundRecord, ...]
    faults: tuple[str, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """Records without their folders."""
        return tuple(one.record for one in self.found)


def read_records(directory: Path) -> Records:
    """Read every `record.json` under `directory`; report unreadable ones as faults."""
    if not directory.is_dir():
        raise RecordError(f"{directory}: there is no such folder. Give the --out folder of `erda run`.")
    found, faults = [], []
    for path in sorted(directory.rglob(RECORD)):
        try:
            found.append(FoundRecord(read_record(path), path.parent))
        except RecordError as error:
            faults.append(str(error))
    lone = [path.parent for path in sorted(directory.rglob(PREDICTIONS)) if not (path.parent / RECORD).is_file()]
    faults += [f"{folder}: {PREDICTIONS} without {RECORD}; repeat the `erda run` that wrote it." for folder in lone]
    faults += [fault for one in found if (fault := one.fault())]
    if not found:
        hint = "\n" + "\n".join(faults) if faults else " Unfinished runs have none; `erda run` resumes them."
        raise RecordError(f"{directory}: contains no readable {RECORD}.{hint}")
    return Records(directory, tuple(found), tuple(faults))


# -- per-example predictions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TestPredictions:
    """Predictions for each test example, stored in `predictions.npz`. Integers index `relations`.

    `best` [n_tasks, n_examples]: best-scored relation after each task, -1 before the example's task is learned.
    `right`: protocol -> bool [n_tasks, n_examples], by the rules in the record (a tie is a miss).
    `scores` [n_examples, n_relations]: scores after the last task, float16.
    """

    __test__ = False  # for pytest

    relations: tuple[str, ...]
    examples: tuple[str, ...]  # ids
    task: np.ndarray  # [n_examples]: index of the example's task
    gold: np.ndarray  # [n_examples]
    best: np.ndarray
    right: dict[str, np.ndarray]
    scores: np.ndarray
    winner: dict[str, np.ndarray] = field(default_factory=dict)  # `Marks.winner` after the last task; not in the file


def write_predictions(folder: Path, found: TestPredictions) -> None:
    """Write `predictions.npz` to the folder of a run."""
    arrays = {
        "relations": np.array(found.relations, dtype=np.str_),
        "examples": np.array(found.examples, dtype=np.str_),
        "task": found.task.astype(np.int32),
        "gold": found.gold.astype(np.int32),
        "best": found.best.astype(np.int32),
        "scores": found.scores,
    }
    arrays |= {f"right_{protocol}": right for protocol, right in found.right.items()}
    write_arrays(folder / PREDICTIONS, arrays)


def read_predictions(path: Path) -> TestPredictions:
    """Read `predictions.npz` from its path or from the folder of its run."""
    path = path / PREDICTIONS if path.is_dir() else path
    arrays = read_arrays(path, error=RecordError, remedy=AGAIN)
    try:
        relations, examples, task, gold, best, scores = (
            arrays[name] for name in ("relations", "examples", "task", "gold", "best", "scores")
        )
    except KeyError as error:
        raise RecordError(f"{path}: lacks {error.args[0]}. {AGAIN}") from None
    right = {name: arrays[f"right_{name}"] for name in PROTOCOLS if f"right_{name}" in arrays}
    n_examples, n_relations = examples.size, relations.size
    fits = (
        relations.ndim == examples.ndim == 1
        and relations.dtype.kind == examples.dtype.kind == "U"
        and task.shape == gold.shape == (n_examples,)
        and best.ndim == 2
        and best.shape[1] == n_examples
        and all(one.shape == best.shape and one.dtype == np.bool_ for one in right.values())
        and scores.shape == (n_examples, n_relations)
        and all(one.dtype.kind == "i" for one in (task, gold, best))
        and all(((low <= one) & (one < n_relations)).all() for one, low in ((gold, 0), (best, -1)))
        and ((task >= 0) & (task < len(best))).all()
    )
    if not fits or not n_examples:
        raise RecordError(f"{path}: its arrays have inconsistent shapes, types or indices. {AGAIN}")
    return TestPredictions(tuple(relations.tolist()), tuple(examples.tolist()), task, gold, best, right, scores)
