"""How far the runs of the paper's tables are, and how long the rest will take."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from erda.benchmark.paper.watch import Watch
from erda.benchmark.run.engines import Outcome
from erda.benchmark.run.many import PlannedRun
from erda.errors import ModelError
from erda.settings.runs import Run


def planned(setting: str, method: str, out: Path = Path("out"), *, device: str = "cpu") -> PlannedRun:
    run = Run(method=method, encoder="toy", dataset="toy", shots=1, order_family="drawn", seed=1, device=device)
    return PlannedRun(run, out / setting / "plain")


def ended(work: PlannedRun, seconds: float | None) -> Outcome:
    if seconds is None:
        return Outcome(work, None, ModelError("no weights"))
    record: Any = SimpleNamespace(total_seconds=seconds)
    return Outcome(work, record)


def test_the_time_left_is_that_of_like_runs(tmp_path: Path) -> None:
    fast, slow, other = planned("a", "fast"), planned("a", "slow"), planned("b", "fast")
    watch = Watch([fast] * 3 + [slow] * 2 + [other], engine="local", n_processes=2, show=False)
    assert watch.seconds_left(2) is None
    assert "after the first run" in watch.time_left()
    watch.add(ended(fast, 10))
    watch.add(ended(slow, 40))
    # two fast at 10, one slow at 40, one of another setting at the mean of all (25), two at once
    assert watch.seconds_left(2) == pytest.approx((2 * 10 + 40 + 25) / 2)
    assert watch.time_left() == "about 42 s left"
    watch.found.add(fast.folder)
    watch.add(ended(fast, 10))  # was there: no less is left
    assert watch.seconds_left(2) == pytest.approx((2 * 10 + 40 + 20) / 2)
    watch.left["a/plain/slow"] = 300
    assert watch.time_left() == "about 1.7 h left"


def test_the_last_run_takes_as_long_as_it_takes() -> None:
    slow = planned("a", "slow")
    watch = Watch([slow, slow], engine="local", n_processes=8, show=False)
    watch.add(ended(slow, 40))
    assert watch.seconds_left(8) == 40


def test_without_a_terminal_each_run_that_ends_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = planned("s", "erda", tmp_path), planned("s", "emr", tmp_path), planned("s", "emar", tmp_path)
    there = first.out / "erda/1/record.json"
    there.parent.mkdir(parents=True)
    there.write_text("{}")
    with Watch([first, second, third], engine="local", n_processes=None) as watch:
        for outcome in (ended(first, 8), ended(second, 100), ended(third, None)):
            watch.add(outcome)
    assert capsys.readouterr().err.splitlines() == [
        "there already: 1 of 3 runs",
        "2 of 3: s/plain/emr/1: 100 s, about 54 s left",
        "3 of 3: s/plain/emar/1: failed",
    ]
    with Watch([first], engine="local", n_processes=None, show=False) as watch:
        watch.add(ended(first, None))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("asked", "resources", "left"),
    [
        ((None, "cpu"), {"CPU": 4.0}, ", about 2 min left"),
        ((2, "cpu"), {"CPU": 4.0}, ", about 5 min left"),
        ((8, "cpu"), {"CPU": 4.0}, ", about 2 min left"),
        ((None, "cuda"), {"CPU": 4.0, "GPU": 1.0}, ", about 10 min left"),
        ((2, "cpu"), None, ""),  # not connected, or no longer
    ],
)
def test_on_ray_the_estimate_knows_the_cluster_or_is_silent(
    asked: tuple[int | None, str],
    resources: dict[str, float] | None,
    left: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    n_processes, device = asked
    ray = SimpleNamespace(is_initialized=lambda: resources is not None, cluster_resources=lambda: resources)
    monkeypatch.setitem(sys.modules, "ray", ray)
    work = planned("s", "erda", device=device)
    with Watch([work] * 11, engine="ray", n_processes=n_processes) as watch:
        watch.add(ended(work, 60))
    assert capsys.readouterr().err == f"1 of 11: s/plain/erda/1: 60 s{left}\n"
