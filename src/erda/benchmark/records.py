"""Records of finished runs, `OUT/METHOD/SEED/record.json`: their fields, their files, and their audit.

A record is sealed with a digest of its content and holds its predictions after the last task, packed. A truncated or
changed record, or one of another version, raises a `RecordError` that names its place.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from erda.benchmark.measures import ALL_SEEN, CANDIDATES, PROTOCOLS, Marks, Measures, forgetting
from erda.errors import RecordError
from erda.fields import Fraction, Similarity, Weight
from erda.files import decode_json, decode_sealed, read_bytes, sealed, write_json
from erda.settings.runs import Run

SCHEMA = 1
MOST_NOTE = 2_000  # characters of JSON; longer notes of a method are not made public
ROUNDING = 1e-9
MOST = 10**12  # examples of a test set
Number = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
RECORD = "record.json"
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


def relation_counts(
    gold: Sequence[Sequence[str]], marks: Sequence[Sequence[Marks]], order: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Fields of a record that count right predictions per relation: `relation_right` and `relation_tests`.

    `gold` holds the gold relations of each task's test examples; `marks[k][j]` marks the tests of task j after task k.
    """
    protocols = _common_protocols(marks[-1])
    right: dict[str, dict[str, list[int]]] = {protocol: {} for protocol in protocols}
    tests: dict[str, int] = {}
    for j, names in enumerate(order):
        for name in names:
            of_it = np.array([one == name for one in gold[j]])
            if of_it.any():
                tests[name] = int(of_it.sum())
                for protocol in protocols:
                    right[protocol][name] = [int(after[j].right[protocol][of_it].sum()) for after in marks[j:]]
    return {"relation_right": right, "relation_tests": tests}


def _common_protocols(marks: Sequence[Marks]) -> list[str]:
    return [name for name in PROTOCOLS if all(name in one.right for one in marks)]


# -- packed predictions ------------------------------------------------------------------------------------------------


def pack_predictions(
    gold: Sequence[Sequence[str]], marks: Sequence[Marks], relations: Sequence[str], order: Sequence[Sequence[str]]
) -> dict[str, str]:
    """Pack gold relations ("gold") and winners after the last task (by protocol), one number per test example.

    A number indexes the relations of `order`, task by task; the largest one is a tie with the gold relation, a miss.
    It takes a byte, or two in streams of more than 255 relations.
    """
    index = {name: i for i, name in enumerate(name for task in order for name in task)}
    kind, tie = _packed_type(len(index))
    number_of = np.array([*(index[name] for name in relations), tie], dtype=kind)  # [-1] is a tie
    rows = {name: number_of[np.concatenate([one.winner[name] for one in marks])] for name in _common_protocols(marks)}
    rows = {"gold": np.array([index[name] for names in gold for name in names], dtype=kind), **rows}
    return {name: b64encode(zlib.compress(row.tobytes(), 9)).decode() for name, row in rows.items()}


def unpack_predictions(record: Record) -> dict[str, np.ndarray]:
    """Unpack `record.packed`: "gold" and each protocol -> [n_examples]; {} if the record has none."""
    n_relations = sum(map(len, record.order))
    kind, tie = _packed_type(n_relations)
    size = sum(record.n_test) * np.dtype(kind).itemsize
    found: dict[str, np.ndarray] = {}
    for name, text in record.packed.items():
        try:
            content = zlib.decompressobj().decompress(b64decode(text, validate=True), size + 1)
        except (ValueError, zlib.error):
            raise RecordError(f"{record.title}: its packed predictions ({name}) are damaged.") from None
        if len(content) == size:
            found[name] = np.frombuffer(content, dtype=kind)
        if name not in found or not ((found[name] < n_relations) | ((found[name] == tie) & (name != "gold"))).all():
            raise RecordError(f"{record.title}: its packed predictions ({name}) do not fit its test examples.")
    if found and "gold" not in found:
        raise RecordError(f"{record.title}: its packed predictions lack the gold relations.")
    return found


def _packed_type(n_relations: int) -> tuple[str, int]:
    """Type of packed numbers, little-endian, and the number of a tie."""
    return ("<u1", 255) if n_relations <= 255 else ("<u2", 65_535)


# -- files -------------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Records:
    """All records under a folder, and faults of unreadable ones."""

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
    if not found:
        hint = "\n" + "\n".join(faults) if faults else " An unfinished run has none; repeat its command."
        raise RecordError(f"{directory}: contains no readable {RECORD}.{hint}")
    return Records(directory, tuple(found), tuple(faults))


# -- records as public results -----------------------------------------------------------------------------------------


def compact_record(record: Record) -> Record:
    """Record without bulky notes and local paths."""
    short = {name: note for name, note in record.notes.items() if len(json.dumps(note)) <= MOST_NOTE}
    left_out = sorted(record.notes.keys() - short.keys())
    notes = {**short, "left_out": left_out} if left_out else short
    names = ("dataset", "encoder", "corpus", "encoder_spec", "settings")
    public: dict[str, Any] = {name: _without_folders(getattr(record, name)) for name in names}
    return replace(record, notes=notes, **public)


def _without_folders(value: Any) -> Any:
    """Absolute paths in a text, or in the texts of a dictionary, by their last part."""
    if isinstance(value, dict):
        return {name: _without_folders(one) for name, one in value.items()}
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def record_bytes(record: Record) -> bytes:
    """A sealed record as one line of JSON."""
    return (json.dumps(sealed(record), ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def audit_record(record: Record) -> list[str]:
    """Faults of a record as a public result; measures are recomputed from its counts per relation."""
    faults = []
    if record.evaluate_on != "test":
        faults.append(f"measured on {record.evaluate_on} data; a result needs --evaluate-on test")
    if record.protocols != RULES or record.accuracy.keys() != set(PROTOCOLS):
        faults.append(f"lacks a protocol; both are needed ({', '.join(PROTOCOLS)})")
    elif record.accuracy[ALL_SEEN] is None:
        faults.append(f"was not measured by {ALL_SEEN}")
    if not record.relation_right or not record.relation_tests:
        faults.append("lacks counts per relation; run again with this version")
    return faults or _contradictions(record) or _prediction_faults(record)


def _prediction_faults(record: Record) -> list[str]:
    """Counts after the last task that differ from the packed predictions; a record without predictions passes."""
    try:
        packed = unpack_predictions(record)
    except RecordError as fault:
        return [str(fault)]
    if not packed:
        return []
    gold, names = packed.pop("gold"), [name for task in record.order for name in task]
    n_tests = np.bincount(gold, minlength=len(names))
    faults = []
    if {name: int(n) for name, n in zip(names, n_tests, strict=True)} != record.relation_tests:
        faults.append("the number of tests per relation differs from its packed predictions")
    if packed.keys() != record.relation_right.keys():
        faults.append(f"has packed predictions by {', '.join(packed)}, counts by {', '.join(record.relation_right)}")
    for protocol, predicted in packed.items():
        n_right = np.bincount(gold[predicted == gold], minlength=len(names))
        counts = record.relation_right.get(protocol, {})
        if any(counts[name][-1] != n for name, n in zip(names, n_right, strict=True) if name in counts):
            faults.append(f"{protocol}: counts per relation differ from its packed predictions")
    return faults


def _contradictions(record: Record) -> list[str]:
    """Measures that differ from those computed from the counts per relation."""
    faults: list[str] = []
    tests = record.relation_tests
    if set(tests) != {name for task in record.order for name in task}:
        return ["its counts per relation do not name the relations of its tasks"]
    n_test = [sum(tests[name] for name in task) for task in record.order]
    if n_test != record.n_test:
        faults.append("n_test differs from the counts per relation")
    for protocol in PROTOCOLS:
        accuracy, matrix = record.accuracy[protocol], record.matrix.get(protocol)
        right = record.relation_right.get(protocol)
        if accuracy is None:
            faults += [f"{protocol}: counts without an accuracy"] if right else []
            continue
        if right is None or matrix is None or len(accuracy) != record.n_tasks or len(matrix) != record.n_tasks:
            faults.append(f"{protocol}: incomplete")
            continue
        if any(len(right.get(name, ())) != record.n_tasks - k for k, task in enumerate(record.order) for name in task):
            faults.append(f"{protocol}: counts per relation are incomplete")
            continue
        if any(max(counts) > tests.get(name, 0) for name, counts in right.items()):
            faults.append(f"{protocol}: more right predictions than test examples")
            continue
        rows = [
            [sum(right[name][k - j] for name in record.order[j]) / n_test[j] for j in range(k + 1)]
            for k in range(record.n_tasks)
        ]
        micro = [sum(a * n for a, n in zip(row, n_test, strict=False)) / sum(n_test[: len(row)]) for row in rows]
        drop = forgetting(rows)
        lost = record.forgetting.get(protocol)
        same = (
            _close(micro, accuracy)
            and all(_close(ours, theirs) for ours, theirs in zip(rows, matrix, strict=True))
            and (drop is None) == (lost is None)
            and _close([drop or 0.0], [lost or 0.0])
        )
        if not same:
            faults.append(f"{protocol}: accuracy, matrix or forgetting differ from the counts per relation")
    return faults


def _close(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(ours) == len(theirs) and all(abs(a - b) <= ROUNDING for a, b in zip(ours, theirs, strict=True))
