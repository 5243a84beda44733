"""Records are complete, sealed and validated when read."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_runs import toy_record

from erda.benchmark.records import (
    PREDICTIONS,
    RECORD,
    read_predictions,
    read_record,
    read_records,
    relation_counts,
    write_record,
)
from erda.benchmark.report.report import write_report
from erda.errors import RecordError
from erda.files import read_arrays, sealed, write_arrays, write_json


def test_a_truncated_record_is_rejected_with_its_line_number(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    path.write_text(path.read_text()[:200])
    with pytest.raises(RecordError, match=r"line \d+"):
        read_record(path)


def test_a_changed_or_unsealed_record_is_rejected(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    value = json.loads(path.read_text())
    toy_record(tmp_path, seed=2)
    without_seal = {name: field for name, field in value.items() if name != "seal"}
    for changed in (
        {**value, "n_test": [n + 1 for n in value["n_test"]]},
        {**value, "accuracy": {"all-seen": [0.5, 0.5, 1.5], "candidates": None}},
        {**value, "seconds": 7},
        without_seal,
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(RecordError) as caught:
            read_record(path)
        assert str(caught.value).startswith(f"{path}: ")
    assert len(write_report(tmp_path, figures=False).faults) == 1, "the report uses the other records"


def test_a_record_of_another_format_is_rejected_although_its_seal_is_valid(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    value = json.loads(path.read_text())
    del value["seal"]
    write_json(path, sealed(value))
    read_record(path)
    write_json(path, sealed({**value, "schema": 99}))
    with pytest.raises(RecordError, match="99"):
        read_record(path)


def test_missing_and_unreadable_records_are_faults_and_the_others_are_read(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        toy_record(tmp_path, seed=seed)
    (tmp_path / "toy/1/record.json").unlink()
    (tmp_path / "toy/3/record.json").write_text("{")
    found = read_records(tmp_path)
    assert [record.seed for record in found.records] == [2]
    unreadable, missing = found.faults
    assert unreadable.startswith(f"{tmp_path / 'toy/3/record.json'}: ")
    assert missing.startswith(f"{tmp_path / 'toy/1'}: ")


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        read_records(tmp_path)
    with pytest.raises(RecordError):
        read_records(tmp_path / "nowhere")


def without(name: str) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda arrays: arrays.pop(name)


def put(name: str, value: object) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda arrays: arrays.__setitem__(name, np.array(value))


@pytest.mark.parametrize(
    "change",
    [without("examples"), put("gold", [0, 1]), put("gold", [6] * 48), put("task", [9] * 48), put("scores", 3.0)],
)
def test_inconsistent_predictions_are_rejected_and_the_report_notes_them(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray]], object]
) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1" / PREDICTIONS
    arrays = read_arrays(path)
    change(arrays)
    write_arrays(path, arrays)
    with pytest.raises(RecordError):
        read_predictions(path)
    (note,) = write_report(tmp_path, figures=False).notes
    assert str(path) in note


def test_damaged_predictions_are_a_note_of_one_line(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1" / PREDICTIONS
    path.write_bytes(path.read_bytes()[:300])
    (note,) = write_report(tmp_path, figures=False).notes
    assert f"{path}: is damaged" in note
    assert "\n" not in note


@pytest.mark.parametrize("name", [PREDICTIONS, RECORD])
def test_a_valid_file_of_another_run_is_noticed(tmp_path: Path, name: str) -> None:
    first = toy_record(tmp_path / "a")
    assert first.relation_tests == toy_record(tmp_path / "b", seed=2).relation_tests, "shapes and relations are equal"
    (tmp_path / "a/toy/1" / name).write_bytes((tmp_path / "b/toy/2" / name).read_bytes())
    told = f"{tmp_path / 'a/toy/1'}: record.json and predictions.npz are not of the same run."
    report = write_report(tmp_path / "a", figures=False)
    assert [told in one for one in (*report.faults, *report.notes)] == [True, True]
    assert not [table for table in report.tables if table.name == "mistakes"]


def test_predictions_of_an_older_record_without_their_sha256_are_read(tmp_path: Path) -> None:
    record = replace(toy_record(tmp_path), predictions_sha256="")
    write_record(tmp_path / "toy/1", record)
    (found,) = read_records(tmp_path).found
    assert found.predictions().relations == ("r0", "r1", "r2", "r3", "r4", "r5")
    for changes in ({"order": [["r0"], ["r1"], ["r9"]]}, {"relation_tests": dict.fromkeys(record.relation_tests, 9)}):
        write_record(tmp_path / "toy/1", replace(record, **changes))
        (found,) = read_records(tmp_path).found
        with pytest.raises(RecordError, match="not of the same run"):
            found.predictions()


def test_a_record_counts_right_predictions_of_each_relation_after_each_task(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    found = read_predictions(tmp_path / "toy/1")
    assert record.relation_tests == dict.fromkeys(found.relations, 8)
    for protocol, by_relation in record.relation_right.items():
        for name, counts in by_relation.items():
            first = next(k for k, task in enumerate(record.order) if name in task)
            for k in range(first, record.n_tasks):
                asked = [i for i, gold in enumerate(found.gold) if found.relations[gold] == name]
                assert counts[k - first] == sum(bool(found.right[protocol][k, i]) for i in asked)
        last = sum(counts[-1] for counts in by_relation.values()) / sum(record.relation_tests.values())
        assert last == pytest.approx(record.after("accuracy", protocol, -1))
    assert relation_counts(found)["relation_right"] == read_record(tmp_path / "toy/1").relation_right
