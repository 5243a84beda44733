"""Records as public results: without bulky notes and local paths, one sealed line each, and audited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from erda.benchmark.measures import ALL_SEEN, PROTOCOLS, forgetting
from erda.benchmark.records import RULES, Record, unpack_predictions
from erda.errors import RecordError
from erda.files import sealed

MOST_NOTE = 2_000  # characters of JSON; longer notes of a method are not made public
ROUNDING = 1e-9


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


def record_line(record: Record, place: str) -> bytes:
    """A sealed record and its place, as one line of a file of records."""
    value = sealed({"place": place, **asdict(record)})
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def audit_record(record: Record) -> list[str]:
    """Faults of a record as a public result.

    Measures are recomputed from the counts per relation, and these after the last task from the packed predictions,
    if it has any.
    """
    faults = []
    if record.evaluate_on != "test":
        faults.append(f"measured on {record.evaluate_on} data; a result needs --evaluate-on test")
    if record.protocols != RULES or record.accuracy.keys() != set(PROTOCOLS):
        faults.append(f"lacks a protocol; both are needed ({', '.join(PROTOCOLS)})")
    elif record.accuracy[ALL_SEEN] is None:
        faults.append(f"was not measured by {ALL_SEEN}")
    names, tests = [name for task in record.order for name in task], record.relation_tests
    if {*names} != tests.keys() or record.n_test != [sum(tests[name] for name in task) for task in record.order]:
        faults.append("has no counts per relation that fit its tasks")
    if faults:
        return faults
    try:
        packed = unpack_predictions(record)
    except RecordError as fault:
        return [str(fault)]
    if packed and np.bincount(packed["gold"], minlength=len(names)).tolist() != [tests[name] for name in names]:
        return ["its counts per relation differ from its packed predictions"]
    return [f"{protocol}: {fault}" for protocol in PROTOCOLS for fault in _protocol_faults(record, protocol, packed)]


def _protocol_faults(record: Record, protocol: str, packed: Mapping[str, np.ndarray]) -> list[str]:
    """Measures by one protocol that differ from the recomputed ones."""
    right, tests, n_test = record.relation_right.get(protocol), record.relation_tests, record.n_test
    if right is None or record.accuracy[protocol] is None:
        return [] if right is record.accuracy[protocol] is None else ["has accuracy or counts, not both"]
    expected = {name: record.n_tasks - k for k, task in enumerate(record.order) for name in task}
    if {name: len(counts) for name, counts in right.items()} != expected:
        return ["counts per relation are incomplete"]
    if any(max(counts) > tests[name] for name, counts in right.items()):
        return ["more right predictions than test examples"]
    n_right = [
        [sum(right[name][k - j] for name in record.order[j]) for j in range(k + 1)] for k in range(record.n_tasks)
    ]
    matrix = [[n / n_test[j] for j, n in enumerate(row)] for row in n_right]
    recomputed = {
        "accuracy": [sum(row) / sum(n_test[: len(row)]) for row in n_right],
        "macro": [sum(row) / len(row) for row in matrix],
        "matrix": matrix,
        "forgetting": forgetting(matrix),
    }
    faults = [
        f"{name} differs from the counts per relation"
        for name, value in recomputed.items()
        if not _close(value, getattr(record, name)[protocol])
    ]
    if packed:
        gold, winner = packed["gold"], packed.get(protocol, packed["gold"][:0])
        n_last = np.bincount(gold[winner == gold] if len(winner) else winner, minlength=len(expected)).tolist()
        if n_last != [right[name][-1] for name in expected]:
            faults.append("counts per relation differ from its packed predictions")
    return faults


def _close(one: Any, other: Any) -> bool:
    """Whether two numbers, or nested lists of numbers, are equal up to rounding."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_close, one, other))
    return one == other or (None not in (one, other) and abs(one - other) <= ROUNDING)
