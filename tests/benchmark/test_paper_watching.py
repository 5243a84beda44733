"""How far the runs of the paper's tables are, and how long the rest will take."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from erda.benchmark.paper.watching import Estimate, Watch, kind_of
from erda.benchmark.run.engines import Outcome
from erda.errors import ModelError
from erda.settings.runs import Run


def run_at(setting: str, method: str, out: Path = Path("out"), *, device: str = "cpu") -> tuple[Run, Path]:
    run = Run(method=method, encoder="toy", dataset="toy", shots=1, order_family="drawn", seed=1, device=device)
    return run, out / setting / "plain"


def ended(work: tuple[Run, Path], seconds: float | None) -> Outcome:
    if seconds is None:
        return Outcome(work, None, ModelError("no weights"))
    record: Any = SimpleNamespace(seconds={"learn": [seconds / 2], "predict": [seconds / 4, seconds / 4]})
    return Outcome(work, record)


def test_the_time_left_is_that_of_like_runs() -> None:
    fast, slow, other = run_at("a", "fast"), run_at("a", "slow"), run_at("b", "fast")
    estimate = Estimate(n_at_once=2)
    for work, n in ((fast, 3), (slow, 2), (other, 1)):
        estimate.left[kind_of(work)] = n
    assert estimate.rest() is None
    assert "after the first run" in estimate.text()
    estimate.add(ended(fast, 10))
    estimate.add(ended(slow, 40))
    # two fast at 10, one slow at 40, one of another setting at the mean of all (25), two at once
    assert estimate.rest() == pytest.approx((2 * 10 + 40 + 25) / 2)
    assert estimate.text() == "about 42 s left"
    estimate.add(ended(fast, 10), found=True)  # was there: no less is left
    assert estimate.rest() == pytest.approx((2 * 10 + 40 + 20) / 2)
    estimate.left[kind_of(slow)] = 300
    assert estimate.text() == "about 1.7 h left"


def test_the_last_run_takes_as_long_as_it_takes() -> None:
    slow = run_at("a", "slow")
    estimate = Estimate.of([slow, slow], n_at_once=8)
    estimate.add(ended(slow, 40))
    assert estimate.rest() == 40


def test_without_a_terminal_each_run_that_ends_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = run_at("s", "erda", tmp_path), run_at("s", "emr", tmp_path), run_at("s", "emar", tmp_path)
    there = first[1] / "erda/1/record.json"
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
    work = run_at("s", "erda", device=device)
    with Watch([work] * 11, engine="ray", n_processes=n_processes) as watch:
        watch.add(ended(work, 60))
    assert capsys.readouterr().err == f"1 of 11: s/plain/erda/1: 60 s{left}\n"
