"""Records are written whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from toy_runs import toy_record

from erda.benchmark.records import PREDICTIONS, half_precision, read_predictions, read_record, read_records
from erda.benchmark.report.report import write_report
from erda.errors import RecordError
from erda.files import read_arrays, write_arrays


def test_a_half_written_record_is_refused_with_its_line(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    path.write_text(path.read_text()[:200])
    with pytest.raises(RecordError, match=r"record.json: is not whole JSON .* line \d+"):
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
        ({"accuracy": {"all-seen": [0.5, 0.5, 1.5], "candidates": None}}, r"accuracy.all-seen\[2\]: must be at most 1"),
        ({"accuracy": {"all-seen": [0.5, -0.5, 0.5], "candidates": None}}, r"\[1\]: must be at least 0, got -0.5"),
        ({"matrix": {"all-seen": [[0.5], [0.5], [0.5]], "candidates": None}}, "one value for each"),
        ({"seconds": 7}, "seconds: expected an object, got 7"),
        ({"accuracy": {"all-seen": ["high", "low", "low"], "candidates": None}}, "expected a number, got 'high'"),
        ({"order": []}, "each of its 0 tasks"),
        ({"order": [["r0", "r1"], ["r2", "r0"], ["r4", "r5"]]}, "order names 'r0' twice"),
        ({"forgetting": {}}, "forgetting lacks all-seen, candidates"),
        (
            {"forgetting": {"all-seen": "much", "candidates": None}},
            "forgetting.all-seen: expected a number",
        ),
        ({"seconds": {"learn": [1, 1, 1]}}, "seconds lacks predict"),
        ({"seconds": {"learn": [1, 1, 1], "predict": [1, 1]}}, "seconds.predict does not hold one value for each"),
        ({"seconds": {"learn": [1, 1, -1], "predict": [1, 1, 1]}}, r"seconds.learn\[2\]: must be at least 0, got -1"),
        ({"settings": {"method": 3}}, r"settings.method: expected an object, got 3"),
        ({"settings": {"method": {"noise": None}}}, "settings.method.noise.* got None"),
        ({"relation_names": ["r0"]}, "relation_names: expected an object"),
        ({"versions": {"torch": 2}}, "versions.torch: expected text, got 2"),
        ({"seed": "one"}, "seed: expected a whole number, got 'one'"),
        ({"seed": True}, "seed: expected a whole number, got True"),
        ({"peak_memory_mb": None}, "peak_memory_mb: expected a number, got None"),
        ({"peak_memory_mb": float("nan")}, "peak_memory_mb: expected a finite number, got nan"),
        ({"n_test": [16, 16, 0]}, r"n_test\[2\]: must be at least 1, got 0"),
        ({"n_fallback": [0, 33, 0]}, "n_fallback counts more questions than were asked"),
        ({"manifest": "3f2a"}, "manifest: expected an object"),
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


def test_a_number_that_changed_since_it_was_written_is_refused(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"n_test": [n + 1 for n in value["n_test"]]}))
    with pytest.raises(RecordError, match=r"was changed or damaged since it was written\. Delete it and run again"):
        read_record(path)
    del value["seal"]  # as records of earlier versions
    path.write_text(json.dumps(value))
    assert read_record(path) == record


def test_a_record_that_is_gone_is_said(tmp_path: Path) -> None:
    for seed in (1, 2):
        toy_record(tmp_path, seed=seed)
    (tmp_path / "toy/1/record.json").unlink()
    found = read_records(tmp_path)
    assert [one.record.seed for one in found.found] == [2]
    assert found.faults == (
        f"{tmp_path / 'toy/1'}: holds predictions.npz but no record.json; give its `erda run` again to make it.",
    )


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1/record.json"
    value = json.loads(path.read_text())
    del value["forgetting"], value["chance"]
    path.write_text(json.dumps(value))
    with pytest.raises(RecordError, match=r"chance: is missing\. \(and 1 more faults\)"):
        read_record(path)


@pytest.mark.parametrize(("content", "message"), [(b"\xff\xfe", "is not whole JSON"), (b"[1]", "expected an object")])
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
    assert "toy/1/record.json: is not whole JSON" in found.faults[0]


def test_a_folder_without_records_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no record.json could be read"):
        read_records(tmp_path)
    with pytest.raises(RecordError, match="there is no such folder"):
        read_records(tmp_path / "nowhere")


def without(name: str) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda arrays: arrays.pop(name)


def put(name: str, value: object) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda arrays: arrays.__setitem__(name, np.array(value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("examples"), "lacks examples"),
        (put("gold", [0, 1]), "do not fit each other"),
        (put("gold", [6] * 48), "do not fit each other"),
        (put("best", np.full((3, 48), -2)), "do not fit each other"),
        (put("task", [9] * 48), "do not fit each other"),
        (put("scores", 3.0), "do not fit each other"),
        (put("right_all-seen", [[True]]), "do not fit each other"),
        (put("relations", [1, 2, 3, 4, 5, 6]), "do not fit each other"),
        (put("gold", np.zeros(48)), "do not fit each other"),
    ],
)
def test_predictions_that_do_not_fit_are_refused_and_the_report_goes_on(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray]], object], message: str
) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1" / PREDICTIONS
    arrays = read_arrays(path)
    change(arrays)
    write_arrays(path, arrays)
    with pytest.raises(RecordError, match=message):
        read_predictions(path)
    (note,) = write_report(tmp_path, figures=False).notes
    assert str(path) in note


def test_damaged_predictions_are_one_line(tmp_path: Path) -> None:
    toy_record(tmp_path)
    path = tmp_path / "toy/1" / PREDICTIONS
    path.write_bytes(path.read_bytes()[:300])
    (note,) = write_report(tmp_path, figures=False).notes
    assert f"{path}: is damaged" in note
    assert "\n" not in note


def test_large_scores_stay_finite_in_half_precision() -> None:
    scores = half_precision(np.array([[1e9, -1e9, 0.5]]))
    assert scores.dtype == np.float16
    assert np.isfinite(scores).all()
    assert scores[0, 2] == 0.5
