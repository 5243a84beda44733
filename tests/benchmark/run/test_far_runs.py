"""Files returned by a (fake) cluster: the driver writes them under a lock, the record last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_runs import toy_record, toy_run

from erda.benchmark.records import RECORD, read_record
from erda.benchmark.run import ray_engine
from erda.benchmark.run.engines import Outcome
from erda.benchmark.run.planned_runs import CacheSettings, Finished, PlannedRun, run_planned
from erda.benchmark.run.progress import run_lock
from erda.errors import WriteError

Send = Callable[[int], Finished]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def send(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Send the runs with seeds 1 to n to a fake cluster."""

    def cluster(_: Any, works: Sequence[PlannedRun], **__: Any) -> Iterator[Outcome[Any, Any]]:
        for work in works:
            toy_record(tmp_path / "node", seed=work.asked.seed)
            folder = tmp_path / "node/toy" / str(work.asked.seed)
            yield Outcome(work, {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})

    def send(n_runs: int) -> Finished:
        runs = [PlannedRun(toy_run(seed=seed), out) for seed in range(1, n_runs + 1)]
        return run_planned(runs, cache=CacheSettings(), engine="ray", show_bars=False)

    monkeypatch.setattr(ray_engine, "run_on_ray", cluster)
    return send


def test_files_of_all_runs_are_written_and_finished_runs_are_not_sent(out: Path, send: Send) -> None:
    toy_record(out, seed=2)
    before = (out / "toy/2" / RECORD).read_bytes()
    finished = send(3)
    assert [record.seed for record in finished.records] == [1, 2, 3]
    assert finished.n_found == 1
    assert (out / "toy/2" / RECORD).read_bytes() == before
    assert read_record(out / "toy/3").seed == 3
    assert not list(out.rglob(".lock"))


def test_a_run_locked_by_another_process_is_a_fault_and_the_others_are_written(out: Path, send: Send) -> None:
    with run_lock(out / "toy/2"):
        finished = send(3)
    assert [record.seed for record in finished.records] == [1, 3]
    assert len(finished.faults) == 1


def test_a_folder_that_cannot_be_written_ends_all_runs(out: Path, send: Send) -> None:
    (out / "toy").mkdir(parents=True)
    (out / "toy/2").write_text("a file where a folder should be")
    with pytest.raises(WriteError):
        send(3)
    assert not list(out.rglob(".lock"))
    assert not (out / "toy/3").exists()
