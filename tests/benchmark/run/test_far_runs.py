"""Runs that are sent elsewhere: locked one by one, and never when others hold them. The cluster is a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_runs import double, toy_record, toy_run

from erda.benchmark.records import RECORD
from erda.benchmark.run import ray_engine
from erda.benchmark.run.engines import Outcome
from erda.benchmark.run.many import MOST_SENT, CacheSettings, Finished, PlannedRun, run_many
from erda.benchmark.run.progress import run_lock
from erda.benchmark.run.ray_engine import run_on_ray
from erda.errors import WriteError
from erda.settings.runs import Run

LOCK = ".lock"
Files = dict[str, bytes]


def files_of(run: Run, folder: Path) -> Files:
    """What a node sends back: the files of the run."""
    place = folder / run.method / str(run.seed)
    if not (place / RECORD).exists():
        toy_record(folder, seed=run.seed)
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


class Cluster:
    """Takes as many pieces as it may, ends the oldest first, and counts the locks that are held meanwhile."""

    def __init__(self, out: Path, nodes: Path, *, n_slots: int = 2) -> None:
        self.out, self.nodes, self.n_slots = out, nodes, n_slots
        self.n_locks: list[int] = []
        self.n_at_once: int | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, _: Any, works: Iterable[Any], *, n_at_once: int | None, **__: Any) -> Iterator[Outcome[Any, Files]]:
        self.n_at_once = n_at_once
        waiting, running = iter(works), []
        while True:
            while len(running) < self.n_slots and (work := next(waiting, None)) is not None:
                running.append(work)
            if not running:
                return
            self.n_locks.append(len(list(self.out.rglob(LOCK))))
            self.meanwhile()
            yield Outcome(running[0], files_of(running.pop(0).asked, self.nodes))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(tmp_path / "out", tmp_path / "nodes")
    monkeypatch.setattr(ray_engine, "run_on_ray", found.run)
    return found


def send(cluster: Cluster, n_runs: int, **settings: Any) -> Finished:
    runs = [PlannedRun(toy_run(seed=seed), cluster.out) for seed in range(1, n_runs + 1)]
    return run_many(runs, cache=CacheSettings(), engine="ray", show_bars=False, **settings)


def test_a_run_is_locked_only_while_it_is_under_way(cluster: Cluster) -> None:
    finished = send(cluster, 6)
    assert [record.seed for record in finished.records] == [1, 2, 3, 4, 5, 6]
    assert max(cluster.n_locks) == 2
    assert not list(cluster.out.rglob(LOCK))
    assert cluster.n_at_once == MOST_SENT < 1024


def test_more_than_a_process_may_hold_open_are_not_sent_at_once(cluster: Cluster) -> None:
    send(cluster, 1, n_processes=5000)
    assert cluster.n_at_once == MOST_SENT
    (cluster.out / "toy/1" / RECORD).unlink()
    send(cluster, 1, n_processes=3)
    assert cluster.n_at_once == 3


def test_a_run_that_another_process_holds_is_said_and_the_rest_goes_on(cluster: Cluster) -> None:
    with run_lock(cluster.out / "toy/2"):
        finished = send(cluster, 3)
    assert [record.seed for record in finished.records] == [1, 3]
    (fault,) = finished.faults
    assert "another process is at work" in fault
    assert not (cluster.out / "toy/2").exists(), "a run that never began leaves no empty folder"


def test_a_run_that_another_process_finished_meanwhile_is_read_and_not_sent(cluster: Cluster) -> None:
    def finish() -> None:
        if not (cluster.out / "toy/4").exists():
            toy_record(cluster.out, seed=4)

    cluster.meanwhile = finish
    finished = send(cluster, 4)
    assert [record.seed for record in finished.records] == [1, 2, 3, 4]
    assert not (cluster.nodes / "toy/4").exists()


def test_a_folder_that_cannot_be_written_ends_it_and_gives_every_lock_back(cluster: Cluster) -> None:
    (cluster.out / "toy").mkdir(parents=True)
    (cluster.out / "toy/3").write_text("a file where a folder should be")
    with pytest.raises(WriteError):
        send(cluster, 4)
    assert not list(cluster.out.rglob(LOCK))
    assert [path.name for path in (cluster.out / "toy").iterdir() if path.is_dir()] == ["1"]


# -- handing out -------------------------------------------------------------------------------------------------------


def test_work_is_taken_when_there_is_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own part is a stand-in that does a piece as soon as it is sent."""
    taken: list[int] = []
    ended: list[int] = []

    def works() -> Iterator[int]:
        for number in range(5):
            taken.append(number)
            yield number

    task = SimpleNamespace(remote=lambda function, work, driver: (function(work, 0), work))
    ray = SimpleNamespace(
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2}}],
        remote=lambda serve: SimpleNamespace(options=lambda **_: task),
        wait=lambda running, num_returns: (running[:1], running[1:]),
        get=lambda done: (done[0], None),
        cancel=lambda *_, **__: None,
        exceptions=SimpleNamespace(RayTaskError=ValueError, RayError=ValueError),
    )

    @contextmanager
    def connect(address: str) -> Iterator[Any]:
        yield ray

    monkeypatch.setattr(ray_engine, "connected", connect)
    for outcome in run_on_ray(double, works(), address="here", n_at_once=2):
        ended.append(outcome.work)
        assert outcome.result == 2 * outcome.work
        assert len(taken) - len(ended) < 2
    assert ended == [0, 1, 2, 3, 4]
