"""A run end to end: its record, its resumption, and the errors it raises."""

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from toy_runs import N_TASKS, ToyMethod, toy_parts, toy_record, toy_run, toy_stream

from erda import files
from erda.benchmark.metrics import ALL_SEEN, CANDIDATES, Marks
from erda.benchmark.records import Record, read_predictions, read_record
from erda.benchmark.run.loop import Parts, run
from erda.benchmark.run.progress import check_same_experiment, run_lock
from erda.benchmark.run.stream_tests import task_arrays
from erda.errors import ErdaError, RecordError, SettingsError, StreamError, WriteError
from erda.types import Predictions


def without_times(record: Record) -> dict[str, object]:
    value = asdict(record)
    del value["seconds"], value["peak_memory_mb"]
    return value


def test_a_record_holds_settings_and_measures(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    on_disk = json.loads((tmp_path / "toy/1/record.json").read_text())
    named = "method encoder dataset shots seed order settings manifest accuracy matrix forgetting seconds versions"
    assert set(named.split()) <= set(on_disk)
    assert read_record(tmp_path / "toy/1") == record
    assert record.order == [["r0", "r1"], ["r2", "r3"], ["r4", "r5"]]
    assert record.manifest["digest"] == toy_stream(1).manifest.digest == record.digest
    assert record.n_test == [16, 16, 16]
    assert len(record.seconds["learn"]) == len(record.seconds["predict"]) == N_TASKS
    assert record.matrix[ALL_SEEN] is not None
    assert [len(row) for row in record.matrix[ALL_SEEN]] == [1, 2, 3]
    assert record.accuracy[ALL_SEEN] == record.accuracy[CANDIDATES]  # every example lists every relation
    assert record.chance[ALL_SEEN] == pytest.approx([1 / 2, 1 / 4, 1 / 6])
    assert record.notes == {"n_tasks": 3, "of_each": [1, 2, 3]}, "lists are joined, other values are the latest"
    assert not (tmp_path / "toy/1/progress").exists()
    assert json.loads((tmp_path / "toy/1/manifest.json").read_text()) == toy_stream(1).manifest.to_json()


def test_measures_agree_with_the_predictions_beside_the_record(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    predictions = read_predictions(tmp_path / "toy/1")
    assert predictions.examples[0] == "test-r0-0"
    assert predictions.best.shape == (N_TASKS, 48)
    for k in range(N_TASKS):
        asked = predictions.task <= k
        assert (predictions.best[k][~asked] == -1).all()
        assert (predictions.right[ALL_SEEN][k][asked] == (predictions.best[k] == predictions.gold)[asked]).all()
        assert record.accuracy[ALL_SEEN] is not None
        assert predictions.right[ALL_SEEN][k][asked].mean() == pytest.approx(record.accuracy[ALL_SEEN][k])
    assert (predictions.scores.argmax(axis=1) == predictions.best[-1]).mean() > 0.95  # float16 may tie


def test_all_tests_seen_so_far_are_predicted_in_one_call(tmp_path: Path) -> None:
    asked = toy_run()
    method = ToyMethod(1)
    parts = Parts(lambda: toy_stream(1), lambda: method, ToyMethod.load)
    run(asked, parts, out=tmp_path, bar=None)
    assert method.n_predicted == [16, 32, 48]


def test_large_scores_stay_finite_in_half_precision() -> None:
    predictions = Predictions(("a", "b", "c"), np.array([[1e9, -1e9, 0.5]], dtype=np.float32))
    scores = task_arrays(predictions, [Marks({}, {}, np.zeros(1, dtype=bool))])["scores"]
    assert scores.dtype == np.float16
    assert scores.tolist() == [[65504, -65504, 0.5]]


def test_a_dataset_without_candidates_has_no_candidates_protocol(tmp_path: Path) -> None:
    parts = Parts(lambda: toy_stream(1, listed=False), lambda: ToyMethod(1), ToyMethod.load)
    record = run(toy_run(), parts, out=tmp_path, bar=None)
    assert record.accuracy[CANDIDATES] is None
    assert record.matrix[CANDIDATES] is None
    assert record.forgetting[CANDIDATES] is None
    assert read_record(tmp_path / "toy/1") == record


def test_a_finished_run_is_read_and_not_repeated(tmp_path: Path) -> None:
    first = toy_record(tmp_path)

    def never() -> None:
        raise AssertionError("a finished run was run again")

    again = run(toy_run(), Parts(never, never, never), out=tmp_path, bar=None)
    assert again == first


@pytest.mark.parametrize("stop", range(N_TASKS))
def test_an_interrupted_run_resumes_and_writes_the_same_record(tmp_path: Path, stop: int) -> None:
    whole = toy_record(tmp_path / "whole")
    asked = toy_run()
    with pytest.raises(KeyboardInterrupt):
        run(asked, toy_parts(asked, interrupt_at=stop), out=tmp_path / "parts", bar=None)
    assert not (tmp_path / "parts/toy/1/record.json").exists()
    restored = []

    def restore(directory: Path) -> ToyMethod:
        restored.append(ToyMethod.load(directory))
        return restored[-1]

    parts = toy_parts(asked)
    resumed = run(asked, Parts(parts.stream, parts.build, restore), out=tmp_path / "parts", bar=None)
    assert without_times(resumed) == without_times(whole)
    assert [method.n_tasks for method in restored] == ([N_TASKS] if stop else [])
    predictions = [read_predictions(tmp_path / name / "toy/1") for name in ("whole", "parts")]
    for name in ("best", "gold", "task", "scores"):
        assert (getattr(predictions[0], name) == getattr(predictions[1], name)).all()


def test_a_kill_between_saving_the_method_and_its_measures_loses_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = toy_record(tmp_path / "whole")
    asked = toy_run()
    write_json = files.write_json
    calls = []

    def die_at_the_second(path: Path, value: dict[str, object]) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        write_json(path, value)

    monkeypatch.setattr("erda.benchmark.run.progress.write_json", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(asked, toy_parts(asked), out=tmp_path / "parts", bar=None)
    monkeypatch.undo()
    assert sorted(path.name for path in (tmp_path / "parts/toy/1/progress").glob("method-*")) == [
        "method-1",
        "method-2",
    ]
    resumed = run(asked, toy_parts(asked), out=tmp_path / "parts", bar=None)
    assert without_times(resumed) == without_times(whole)


def test_a_folder_with_other_settings_is_rejected(tmp_path: Path) -> None:
    toy_record(tmp_path)
    other = toy_run(settings={"method": {"noise": 0.9}, "encoder": {}, "stream": {}})
    with pytest.raises(SettingsError, match=r"method.noise: 0.5 there, 0.9 now"):
        run(other, toy_parts(other), out=tmp_path, bar=None)


def test_an_unfinished_run_with_other_settings_is_rejected_and_kept(tmp_path: Path) -> None:
    asked = toy_run()
    with pytest.raises(KeyboardInterrupt):
        run(asked, toy_parts(asked, interrupt_at=1), out=tmp_path, bar=None)
    before = (tmp_path / "toy/1/progress/progress.json").read_text()
    other = toy_run(shots=5)
    with pytest.raises(SettingsError, match="shots: 2 there, 5 now"):
        run(other, toy_parts(other), out=tmp_path, bar=None)
    assert (tmp_path / "toy/1/progress/progress.json").read_text() == before


def test_one_folder_holds_one_experiment(tmp_path: Path) -> None:
    toy_record(tmp_path)
    another_method = toy_run(method="other", settings={"method": {"margin": 1.0}, "encoder": {}, "stream": {}})
    check_same_experiment(tmp_path, another_method)  # another method has its own settings
    with pytest.raises(SettingsError, match="dataset: toy there, fewrel now"):
        check_same_experiment(tmp_path, toy_run(method="other", seed=2, dataset="fewrel"))
    settings = {"method": {"noise": 0.5}, "encoder": {"size": 4}, "stream": {}}
    with pytest.raises(SettingsError, match=r"encoder.size: not set there, 4 now"):
        check_same_experiment(tmp_path, toy_run(method="other", settings=settings))


def test_a_run_does_not_resume_on_changed_data(tmp_path: Path) -> None:
    asked = toy_run()
    with pytest.raises(KeyboardInterrupt):
        run(asked, toy_parts(asked, interrupt_at=1), out=tmp_path, bar=None)
    parts = toy_parts(asked)
    changed = Parts(lambda: toy_stream(1, n_test=9), parts.build, parts.restore)
    with pytest.raises(SettingsError):
        run(asked, changed, out=tmp_path, bar=None)


def test_a_full_disk_keeps_earlier_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_record(tmp_path)
    before = (tmp_path / "toy/1/record.json").read_bytes()
    asked = toy_run(seed=2)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError):
        run(asked, toy_parts(asked), out=tmp_path, bar=None)
    monkeypatch.undo()
    assert (tmp_path / "toy/1/record.json").read_bytes() == before
    assert not list((tmp_path / "toy/2").rglob(".task*"))  # no partial file is left
    assert toy_record(tmp_path, seed=2).seed == 2


def test_a_folder_that_cannot_be_created_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(WriteError):
        toy_record(tmp_path / "taken")


def test_a_run_is_locked_against_other_processes(tmp_path: Path) -> None:
    with run_lock(tmp_path / "toy/1"), pytest.raises(RecordError):
        toy_record(tmp_path)
    assert toy_record(tmp_path).n_tasks == N_TASKS


def test_what_a_kill_leaves_beside_a_record_is_removed_by_the_next_command(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    place = tmp_path / "toy/1"
    whole = sorted(place.rglob("*"))
    (place / "progress").mkdir()
    for name in (".lock", ".predictions.npz.0123456789abcdef.tmp", "progress/task-3.npz"):
        (place / name).touch()
    with run_lock(place):
        assert toy_record(tmp_path) == record, "a finished run is read while another process tidies up"
        assert (place / "progress/task-3.npz").exists()
    (place / ".lock").touch()
    assert toy_record(tmp_path) == record
    assert sorted(place.rglob("*")) == whole


def test_temporary_files_of_a_killed_run_are_removed_when_it_is_finished(tmp_path: Path) -> None:
    place = tmp_path / "toy/1"
    place.mkdir(parents=True)
    (place / ".record.json.0123456789abcdef.tmp").touch()
    toy_record(tmp_path)
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_out_of_memory_is_an_erda_error(tmp_path: Path) -> None:
    class Greedy(ToyMethod):
        def learn(self, task: object) -> None:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")

    parts = Parts(lambda: toy_stream(1), lambda: Greedy(1), ToyMethod.load)
    with pytest.raises(ErdaError):
        run(toy_run(), parts, out=tmp_path, bar=None)


def test_too_few_predictions_are_rejected(tmp_path: Path) -> None:
    class Lazy(ToyMethod):
        def predict(self, examples: list[object]) -> object:
            return super().predict(examples[:-1])

    parts = Parts(lambda: toy_stream(1), lambda: Lazy(1), ToyMethod.load)
    with pytest.raises(StreamError):
        run(toy_run(), parts, out=tmp_path, bar=None)


def test_a_run_can_evaluate_on_validation_data(tmp_path: Path) -> None:
    record = toy_record(tmp_path, evaluate_on="validation")
    assert record.n_test == [6, 6, 6]
    assert read_predictions(tmp_path / "toy/1").examples[0].startswith("validation-")


def test_the_learned_method_can_be_saved(tmp_path: Path) -> None:
    asked = toy_run()
    run(asked, toy_parts(asked), out=tmp_path, keep_method=True, bar=None)
    assert ToyMethod.load(tmp_path / "toy/1/method").n_tasks == N_TASKS
