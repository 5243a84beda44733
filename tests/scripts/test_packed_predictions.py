"""Packed predictions: a byte per test example, from which the accuracy after the last task is recomputed."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from zlib import compress

import numpy as np
import pytest
from toy_runs import toy_record

from erda.benchmark.measures import TestAnswers, mark
from erda.benchmark.records import Record, pack_predictions, unpack_predictions
from erda.errors import RecordError
from erda.types import Predictions
from public_records import audit_record


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return toy_record(tmp_path)


def test_accuracy_and_counts_are_recomputed_from_the_packed_predictions(record: Record) -> None:
    packed = unpack_predictions(record)
    names = [name for task in record.order for name in task]
    assert [names[i] for i in packed["gold"]] == [name for name in names for _ in range(8)]
    for protocol, by_relation in record.relation_right.items():
        right = packed[protocol] == packed["gold"]
        assert right.mean() == pytest.approx(record.after("accuracy", protocol, -1))
        for i, name in enumerate(names):
            assert right[packed["gold"] == i].sum() == by_relation[name][-1]
    assert audit_record(record) == []


def test_more_than_255_relations_take_two_bytes(record: Record) -> None:
    names = [f"r{i}" for i in range(300)]
    marks = mark(Predictions(tuple(names), np.eye(300)), TestAnswers(tuple(names), np.arange(300), None))
    packed = pack_predictions(names, marks, names, [names])
    found = unpack_predictions(replace(record, order=[names], n_test=[300], packed=packed))
    assert found["gold"].tolist() == found["all-seen"].tolist() == list(range(300))


@pytest.mark.parametrize("content", [b"", b"\x00", bytes([255]) * 10_000, "damaged"])
def test_an_edited_prediction_is_found(record: Record, content: bytes | str) -> None:
    text = content if isinstance(content, str) else b64encode(compress(content)).decode()
    edited = replace(record, packed={**record.packed, "all-seen": text})
    with pytest.raises(RecordError, match="packed predictions"):
        unpack_predictions(edited)
    assert audit_record(edited)


def test_an_accuracy_edited_together_with_its_counts_is_found(record: Record) -> None:
    tests = record.relation_tests
    right = {
        protocol: {name: [tests[name]] * len(counts) for name, counts in of.items()}
        for protocol, of in record.relation_right.items()
    }
    ones = {protocol: [[1.0] * (k + 1) for k in range(record.n_tasks)] for protocol in right}
    perfect = replace(
        record,
        relation_right=right,
        accuracy={protocol: [1.0] * record.n_tasks for protocol in right},
        matrix=ones,
        forgetting=dict.fromkeys(right, 0.0),
    )
    assert [fault for fault in audit_record(perfect) if "packed predictions" in fault]


def test_a_tie_with_the_gold_relation_wins_for_nobody() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [2.0, 0.5, 1.0]])
    answers = TestAnswers(("a", "b", "c"), np.array([0, 0, 0]), np.array([[2], [2], [1]]))
    marks = mark(Predictions(("a", "b", "c"), scores), answers)
    assert marks.winner["all-seen"].tolist() == [-1, 1, 0]
    assert marks.winner["candidates"].tolist() == [0, 2, 0]
