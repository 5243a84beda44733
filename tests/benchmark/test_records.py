"""Records are complete, sealed and validated when read."""

import json
from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.records import read_record, read_records
from erda.benchmark.report.report_files import write_report
from erda.errors import RecordError
from erda.files import sealed, write_json


def test_a_changed_or_unsealed_record_is_rejected_and_so_is_another_format(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    value = json.loads(path.read_text())
    toy_record(tmp_path, seed=2)
    without_seal = {name: field for name, field in value.items() if name != "seal"}
    write_json(path, sealed(without_seal))
    read_record(path)
    for changed in (
        {**value, "n_test": [n + 1 for n in value["n_test"]]},
        {**value, "accuracy": {"all-seen": [0.5, 0.5, 1.5], "candidates": None}},
        {**value, "seconds": 7},
        without_seal,
        sealed({**without_seal, "schema": 99}),
    ):
        write_json(path, changed)
        with pytest.raises(RecordError) as caught:
            read_record(path)
        assert str(caught.value).startswith(f"{path}: ")
    assert "99" in str(caught.value), "its seal is valid"
    assert len(write_report(tmp_path, figures=False).faults) == 1, "the report uses the other records"


def test_unreadable_records_are_faults_and_the_others_are_read(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        toy_record(tmp_path, seed=seed)
    (tmp_path / "toy/3/record.json").write_text("{")
    found = read_records(tmp_path)
    assert [record.seed for record in found.records] == [1, 2]
    (unreadable,) = found.faults
    assert unreadable.startswith(f"{tmp_path / 'toy/3/record.json'}: ")


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        read_records(tmp_path)
    with pytest.raises(RecordError):
        read_records(tmp_path / "nowhere")


def test_a_run_whose_record_is_gone_is_named(tmp_path: Path) -> None:
    for seed in (1, 2):
        toy_record(tmp_path, seed=seed)
    (tmp_path / "toy/2/record.json").unlink()
    (fault,) = read_records(tmp_path).faults
    assert fault.startswith(f"{tmp_path / 'toy/2'}: has no record.json")
