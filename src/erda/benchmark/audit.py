"""Records as public results: audit a record against its predictions, and strip it of bulk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from erda.benchmark.metrics import ALL_SEEN, PROTOCOLS, forgetting
from erda.benchmark.records import PREDICTIONS, RULES, FoundRecord, Record, relation_counts, unpack_predictions
from erda.errors import RecordError
from erda.files import sealed

MOST_NOTE = 2_000  # characters of JSON; longer notes of a method (provenance of augmentation) are left out
ROUNDING = 1e-9


def compact_record(found: FoundRecord) -> Record:
    """Record without bulky notes and local paths; counts per relation come from its predictions if it lacks them."""
    record = found.record
    if not record.relation_tests and found.folder is not None and (found.folder / PREDICTIONS).exists():
        record = replace(record, **relation_counts(found.predictions()))
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
