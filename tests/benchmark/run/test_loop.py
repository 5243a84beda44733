"""A run end to end: its record, its folder, and the errors it raises."""

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import N_TASKS, ToyMethod, toy_record, toy_run, toy_stream

from erda.benchmark.experiments import reject_mixing
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import read_record
from erda.benchmark.run.loop import run, run_lock
from erda.benchmark.run.planned_runs import CacheSettings, PlannedRun, check_same_experiment, shared_cache
from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import read_manifest
from erda.errors import ErdaError, RecordError, SettingsError, StreamError, WriteError
from erda.settings.runs import Run
from erda.types import Example, Predictions, Task

WORDS = "Ada met Bob in town today"


def test_a_record_holds_settings_and_measures(tmp_path: Path) -> None:
    method = ToyMethod(1)
    record = toy_record(tmp_path, learner=method)
    assert method.n_predicted == [16, 32, 48], "all tests so far are predicted in one call"
    on_disk = json.loads((tmp_path / "toy/1/record.json").read_text())
    named = "method encoder dataset shots seed order settings manifest accuracy matrix forgetting seconds versions"
    assert set(named.split()) <= set(on_disk)
    assert read_record(tmp_path / "toy/1") == record
    assert record.order == [["r0", "r1"], ["r2", "r3"], ["r4", "r5"]]
    assert record.manifest["digest"] == toy_stream(1).manifest.digest == record.digest
    assert record.n_test == [16, 16, 16]
    assert len(record.seconds["learn"]) == len(record.seconds["predict"]) == N_TASKS
    assert [len(row) for row in record.matrix[ALL_SEEN]] == [1, 2, 3]
    assert record.accuracy[ALL_SEEN] == record.accuracy[CANDIDATES]  # every example lists every relation
    assert record.chance[ALL_SEEN] == pytest.approx([1 / 2, 1 / 4, 1 / 6])
    assert record.notes == {"n_tasks": 3, "of_each": [1, 2, 3]}, "lists are joined, other values are the latest"
    assert sorted(path.name for path in (tmp_path / "toy/1").iterdir()) == ["manifest.json", "record.json"]
    assert json.loads((tmp_path / "toy/1/manifest.json").read_text()) == toy_stream(1).manifest.to_json()


def never() -> None:
    raise AssertionError("a finished run was run again")


def test_a_finished_run_is_read_and_not_repeated(tmp_path: Path) -> None:
    first = toy_record(tmp_path)
    (tmp_path / "toy/1/.lock").touch()  # left by a kill after the record was written
    assert run(toy_run(), open_stream=never, build=never, out=tmp_path, bar=False) == first
    assert not (tmp_path / "toy/1/.lock").exists()


@pytest.mark.parametrize("stop", range(N_TASKS))
def test_an_interrupted_run_leaves_no_record_and_starts_again(tmp_path: Path, stop: int) -> None:
    whole = toy_record(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        toy_record(tmp_path / "parts", learner=ToyMethod(1, interrupt_at=stop))
    assert not (tmp_path / "parts/toy").exists()
    again = toy_record(tmp_path / "parts")
    same = {"seconds": whole.seconds, "peak_memory_mb": whole.peak_memory_mb}
    assert replace(again, **same) == whole


def test_temporary_files_of_a_killed_run_are_removed_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "toy/1"
    place.mkdir(parents=True)
    (place / ".record.json.0123456789abcdef.tmp").touch()
    (place / ".lock").touch()
    toy_record(tmp_path)
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_a_folder_with_other_settings_is_rejected(tmp_path: Path) -> None:
    toy_record(tmp_path)
    with pytest.raises(SettingsError, match=r"method.noise: 0.5 there, 0.9 now"):
        toy_record(tmp_path, settings={"method": {"noise": 0.9}, "encoder": {}, "stream": {}})


def test_one_folder_holds_one_experiment(tmp_path: Path) -> None:
    toy_record(tmp_path)
    another_method = toy_run(method="other", settings={"method": {"margin": 1.0}, "encoder": {}, "stream": {}})
    check_same_experiment(tmp_path, another_method)  # another method has its own settings
    with pytest.raises(SettingsError, match="dataset: toy there, fewrel now"):
        check_same_experiment(tmp_path, toy_run(method="other", seed=2, dataset="fewrel"))
    settings = {"method": {"noise": 0.5}, "encoder": {"size": 4}, "stream": {}}
    with pytest.raises(SettingsError, match=r"encoder.size: not set there, 4 now"):
        check_same_experiment(tmp_path, toy_run(method="other", settings=settings))


def test_a_full_disk_keeps_earlier_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_record(tmp_path)
    before = (tmp_path / "toy/1/record.json").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError):
        toy_record(tmp_path, seed=2)
    monkeypatch.undo()
    assert (tmp_path / "toy/1/record.json").read_bytes() == before
    assert not list((tmp_path / "toy").glob("2/*"))  # no partial file is left
    assert toy_record(tmp_path, seed=2).seed == 2


def test_a_run_is_locked_against_other_processes(tmp_path: Path) -> None:
    with run_lock(tmp_path / "toy/1"), pytest.raises(RecordError):
        toy_record(tmp_path)
    assert toy_record(tmp_path).n_tasks == N_TASKS


class Greedy(ToyMethod):
    def learn(self, task: Task) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")


class Lazy(ToyMethod):
    def predict(self, examples: Sequence[Example]) -> Predictions:
        return super().predict(examples[:-1])


@pytest.mark.parametrize(("method", "error"), [(Greedy, ErdaError), (Lazy, StreamError)])
def test_too_little_memory_and_too_few_predictions_are_errors(
    method: type[ToyMethod], error: type[ErdaError], tmp_path: Path
) -> None:
    with pytest.raises(error):
        toy_record(tmp_path, learner=method(1))


def test_a_run_can_evaluate_on_validation_data(tmp_path: Path) -> None:
    assert toy_record(tmp_path, evaluate_on="validation").n_test == [6, 6, 6]


def test_the_learned_method_can_be_saved(tmp_path: Path) -> None:
    run(toy_run(), open_stream=toy_stream, build=lambda: ToyMethod(1), out=tmp_path, keep_method=True)
    assert ToyMethod.load(tmp_path / "toy/1/method").n_tasks == N_TASKS


# -- corpora and settings that must not be mixed -----------------------------------------------------------------------


def corpus(folder: Path, *sentences: str) -> Path:
    rows = [
        {
            "tokens": sentence.split(),
            "head": {"name": "Ada", "span": [0, 1]},
            "tail": {"name": "Bob", "span": [2, 3]},
            "relation": None,
        }
        for sentence in sentences
    ]
    source = folder.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_corpus([source], folder)
    return folder


def asked(corpus: str, **changes: object) -> Run:
    return toy_run(corpus=corpus, **changes)


def test_corpora_are_compared_by_content_not_by_path(tmp_path: Path) -> None:
    first, moved = corpus(tmp_path / "a", WORDS), corpus(tmp_path / "b", WORDS)
    other = corpus(tmp_path / "c", WORDS, WORDS + " again")
    then = toy_record(tmp_path / "runs", corpus=str(first))
    then = replace(then, notes={"corpus": {"digest": read_manifest(first).digest}})
    reject_mixing(tmp_path, then=then, now=asked(str(moved)))
    with pytest.raises(SettingsError, match=r"corpus: a \(\w{12}\) there, c \(\w{12}\) now"):
        reject_mixing(tmp_path, then=then, now=asked(str(other)))


def test_a_setting_newer_than_a_record_has_its_default(tmp_path: Path) -> None:
    def erda(**settings: object) -> Run:
        return asked("", method="erda", settings={"method": settings, "encoder": {}, "stream": {}})

    reject_mixing(tmp_path, then=erda(batch_size=5), now=erda(batch_size=5, n_rehearsed=0))
    with pytest.raises(SettingsError, match=r"method\.n_rehearsed: 0 there, 3 now"):
        reject_mixing(tmp_path, then=erda(batch_size=5), now=erda(batch_size=5, n_rehearsed=3))


def test_a_shared_cache_never_takes_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".frozen").mkdir()
    (tmp_path / ".frozen" / "mine.txt").write_text("x")
    with shared_cache(CacheSettings(), [PlannedRun(asked(""), tmp_path)], needed=True) as cache:
        (Path(cache.folder) / "states").write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == [".frozen"]
    assert (tmp_path / ".frozen" / "mine.txt").exists()
