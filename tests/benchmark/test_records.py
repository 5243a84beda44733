"""Records are written whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from toy_runs import toy_record

from erda.benchmark.records import (
    half_precision,
    read_arrays,
    read_outcomes,
    read_record,
    read_records,
    write_arrays,
    write_json,
    write_whole,
)
from erda.benchmark.report.report import write_report
from erda.errors import RecordError


def test_writing_replaces_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert [one.name for one in path.parent.iterdir()] == ["file.txt"]


def test_numbers_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"accuracy": float("nan")})
    assert not (tmp_path / "x.json").exists()


def test_a_half_written_record_is_refused_with_its_line(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    path.write_text(path.read_text()[:200])
    with pytest.raises(RecordError, match=r"record.json:\d+: is not whole JSON"):
        read_record(path)


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    with pytest.raises(RecordError, match="has version 99 of the record format, this erda reads version 1"):
        read_record(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accuracy": {"all-seen": [0.5], "candidates": None}}, "one value for each of its 3 tasks"),
        ({"matrix": {"all-seen": [[0.5], [0.5], [0.5]], "candidates": None}}, "one value for each"),
        ({"seconds": 7}, "unexpected shape"),
        ({"accuracy": {"all-seen": ["high", "low", "low"], "candidates": None}}, "unexpected shape"),
        ({"order": []}, "each of its 0 tasks"),
        ({"forgetting": {}}, "forgetting lacks all-seen, candidates"),
        ({"forgetting": {"all-seen": "much", "candidates": None}}, r"forgetting.all-seen: expected .*, got 'much'"),
        ({"seconds": {"learn": [1, 1, 1]}}, "seconds lacks predict"),
        ({"seconds": {"learn": [1, 1, 1], "predict": [1, 1]}}, "seconds.predict does not hold one value for each"),
        ({"settings": {"method": 3}}, r"settings.method: expected dict.*, got 3"),
        ({"settings": {"method": {"noise": None}}}, "settings.method.noise: expected .*, got None"),
        ({"relation_names": ["r0"]}, "relation_names: expected dict"),
        ({"versions": {"torch": 2}}, "versions.torch: expected str, got 2"),
        ({"seed": "one"}, "seed: expected int, got 'one'"),
        ({"seed": True}, "seed: expected int, got True"),
        ({"peak_memory_mb": None}, "peak_memory_mb: expected float, got None"),
        ({"peak_memory_mb": float("nan")}, "peak_memory_mb: expected float, got nan"),
        ({"n_test": [16, 16, 0]}, "a task without a question"),
        ({"manifest": "3f2a"}, "manifest: expected dict"),
        ({"macro": {"all-seen": None, "candidates": None}}, "macro of all-seen is null and the others are not"),
    ],
)
def test_a_record_of_a_strange_shape_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match=message) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path}: ")
    toy_record(tmp_path, seed=2)
    assert len(write_report(tmp_path, figures=False).faults) == 1, "the report goes on with the others"


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    value = json.loads(path.read_text())
    del value["forgetting"], value["chance"]
    path.write_text(json.dumps(value))
    with pytest.raises(RecordError, match="lacks chance, forgetting"):
        read_record(path)


@pytest.mark.parametrize(("content", "message"), [(b"\xff\xfe", "not UTF-8"), (b"[1]", "expected a JSON object")])
def test_files_that_are_no_records(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(RecordError, match=message):
        read_record(tmp_path)


def test_one_bad_record_does_not_hide_the_others(tmp_path: Path) -> None:
    toy_record(tmp_path, seed=1)
    toy_record(tmp_path, seed=2)
    (tmp_path / "toy/1/record.json").write_text("{")
    found = read_records(tmp_path)
    assert [record.seed for record in found.records] == [2]
    assert len(found.faults) == 1
    assert "toy/1/record.json:1" in found.faults[0]


def test_a_folder_without_records_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no record.json could be read"):
        read_records(tmp_path)
    with pytest.raises(RecordError, match="there is no such folder"):
        read_records(tmp_path / "nowhere")


def test_damaged_and_pickled_arrays_are_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"x": np.arange(1000)})
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:300])
    with pytest.raises(RecordError, match="is damaged"):
        read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.array([{}], dtype=object))
    with pytest.raises(RecordError, match="is damaged"):
        read_arrays(tmp_path / "b.npz")
    write_arrays(tmp_path / "c.npz", {"relations": np.array(["a"])})
    with pytest.raises(RecordError, match="lacks examples"):
        read_outcomes(tmp_path / "c.npz")


def test_large_scores_stay_finite_in_half_precision() -> None:
    scores = half_precision(np.array([[1e9, -1e9, 0.5]]))
    assert scores.dtype == np.float16
    assert np.isfinite(scores).all()
    assert scores[0, 2] == 0.5
