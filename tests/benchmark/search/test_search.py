"""A search over small runs: its best settings, resumption, and errors."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_runs import ToyMethod, toy_stream

from erda.benchmark.records import read_record
from erda.benchmark.report.table_formats import to_terminal
from erda.benchmark.run.loop import Parts, run
from erda.benchmark.run.planned_runs import Finished, PlannedRun
from erda.benchmark.search import search as search_module
from erda.benchmark.search.result import best_table, write_best
from erda.benchmark.search.search import CUT, FAILED, STUDY, Search, SearchResult, folder_of, search
from erda.benchmark.search.space import parse_space
from erda.cli.main import main
from erda.errors import RecordError, SettingsError, WriteError
from erda.settings.load import run_settings
from erda.settings.runs import Run

SMALL = {"n_tasks": 2, "first_shots": 3, "test_per_relation": 4, "encoder.hidden_size": 4, "batch_size": 20}
SPACE = ("memory_iterations=1:2", "learning_rate=0.001,0.01,0.1")


def asked(
    *, seeds: Sequence[int] = (100, 110), space: tuple[str, ...] = SPACE, sampler: str = "random", **more: Any
) -> Search:
    settings = run_settings(methods="erda", encoder="bilstm", settings=SMALL, seeds=seeds, evaluate_on="validation")
    choices = parse_space(space, method="erda", encoder="bilstm", grid=sampler == "grid")
    return Search(settings=settings, space=choices, sampler=sampler, protocol="all-seen", **more)


def tried(found: SearchResult) -> list[tuple[object, ...]]:
    return [(one.values, one.accuracies, one.state) for one in found.trials]


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Learn with a toy method whose noise grows with both settings; gives the runs that were begun."""
    runs: list[Run] = []

    def run_toys(planned: Sequence[PlannedRun], **_: Any) -> Finished:
        ((asked, out),) = [(one.asked, one.out) for one in planned]
        runs.append(asked)
        own = asked.settings["method"]
        noise = 10 * own["learning_rate"] * own["memory_iterations"]
        parts = Parts(lambda: toy_stream(asked.seed), lambda: ToyMethod(asked.seed, noise), ToyMethod.load)
        return Finished((run(asked, parts, out=out, bar=None),), 0, ())

    monkeypatch.setattr(search_module, "run_planned", run_toys)
    return runs


def stop_at(call: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = KeyboardInterrupt) -> None:
    """Raise an error in the run with this number."""
    run_planned, calls = search_module.run_planned, []

    def stopping(*args: Any, **keywords: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            raise error
        return run_planned(*args, **keywords)

    monkeypatch.setattr(search_module, "run_planned", stopping)


def test_a_grid_is_tried_once_and_records_are_kept(tmp_path: Path) -> None:
    found = search(asked(sampler="grid", prune=False), out=tmp_path, show_bars=False)
    values = [(one.values["erda.memory_iterations"], one.values["erda.learning_rate"]) for one in found.trials]
    assert sorted(values) == [(n, rate) for n in (1, 2) for rate in (0.001, 0.01, 0.1)]
    best = found.ranked()[0]
    assert best.accuracy == max(one.accuracy for one in found.trials)
    for one in found.trials:
        folder = tmp_path / "trials" / folder_of(one.values) / "erda"
        records = [read_record(folder / seed) for seed in ("100", "110")]
        assert {record.evaluate_on for record in records} == {"validation"}
        assert {record.settings["method"]["learning_rate"] for record in records} == {one.values["erda.learning_rate"]}
        assert one.accuracies == tuple((record.accuracy["all-seen"] or [])[-1] for record in records)
    again = search(asked(sampler="grid", prune=False), out=tmp_path, show_bars=False)
    assert tried(again) == tried(found)


def test_the_first_trial_is_the_current_settings_and_values_run_once(tmp_path: Path, begun: list[Run]) -> None:
    wanted = asked(space=("memory_iterations=1:2", "memory_size=0,1"), seeds=(100,), prune=False)
    found = search(wanted, out=tmp_path, n_trials=3, show_bars=False)
    assert found.trials[0].values == {"erda.memory_iterations": 2, "erda.memory_size": 1}
    whole = search(wanted, out=tmp_path, n_trials=8, show_bars=False)
    assert len(whole.trials) == 4, "every choice of values"
    assert len(list(tmp_path.rglob("record.json"))) == 4


def test_a_resumed_search_tries_the_same_values(
    tmp_path: Path, begun: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = asked(sampler="tpe", space=("memory_iterations=1:2", "learning_rate=0.001:0.1:log"), prune=False)
    whole = search(wanted, out=tmp_path / "whole", n_trials=4, show_bars=False)
    with monkeypatch.context() as patch:
        stop_at(6, patch)  # the second stream of the third trial
        with pytest.raises(KeyboardInterrupt):
            search(wanted, out=tmp_path / "parts", n_trials=4, show_bars=False)
    begun.clear()
    resumed = search(wanted, out=tmp_path / "parts", n_trials=4, show_bars=False)
    assert tried(resumed) == tried(whole)
    assert len(begun) == 4, "two trials"
    more = search(wanted, out=tmp_path / "parts", n_trials=5, show_bars=False)
    assert tried(more)[:4] == tried(whole)
    assert len(more.trials) == 5


@pytest.mark.long
def test_a_killed_search_repeats_the_killed_trials(tmp_path: Path) -> None:
    sets = [f"--set={name}={value}" for name, value in SMALL.items()]
    command = [sys.executable, "-m", "erda", "search", *sets, "--seeds", "100,110", "--out", str(tmp_path)]
    command += ["--space", SPACE[0], "--space", SPACE[1], "--trials", "4", "--no-prune", "--jobs", "2"]
    command += ["--sampler", "grid"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        while not list(tmp_path.glob("trials/*/erda/*/progress")) and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "Trials: 4 whole." in done.stdout
    assert not list(tmp_path.rglob("progress"))
    assert len(list((tmp_path / "trials").iterdir())) == 4


def test_poor_trials_are_pruned(tmp_path: Path) -> None:
    wanted = asked(space=("learning_rate=0.01,0.02,0.03,0.04,0.5,0.6,0.7,0.8",), sampler="grid")
    found = search(wanted, out=tmp_path, show_bars=False)
    cut = [one for one in found.trials if one.state == CUT]
    assert cut
    assert {len(one.accuracies) for one in cut} == {1}
    assert not {one.number for one in cut} & {one.number for one in found.ranked()}
    assert f"{len(cut)} cut short" in to_terminal(best_table(wanted, found))


def test_a_failed_trial_is_reported_and_the_others_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_planned = search_module.run_planned

    def failing(planned: Sequence[PlannedRun], **keywords: Any) -> Finished:
        if planned[0].asked.settings["method"]["learning_rate"] == 0.01:
            return Finished((), 0, ("erda 100: no such weights",))
        return run_planned(planned, **keywords)

    monkeypatch.setattr(search_module, "run_planned", failing)
    found = search(asked(seeds=(100,), sampler="grid"), out=tmp_path, show_bars=False)
    failed = [one for one in found.trials if one.state == FAILED]
    assert [one.values["erda.learning_rate"] for one in failed] == [0.01, 0.01]
    assert found.faults == tuple(f"trial {one.number}: erda 100: no such weights" for one in failed)
    assert len(found.ranked()) == 4


def test_a_full_disk_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(2, monkeypatch, WriteError)
    with pytest.raises(WriteError):
        search(asked(sampler="grid"), out=tmp_path, show_bars=False)


def test_best_toml_is_a_settings_file(tmp_path: Path) -> None:
    search_asked = asked(seeds=(100,), sampler="grid")
    found = search(search_asked, out=tmp_path, n_trials=2, show_bars=False)
    assert write_best(search_asked, found, out=tmp_path, command="erda search --out 'my folder'")
    text = (tmp_path / "best.toml").read_text()
    assert "#   erda search --out 'my folder'\n" in text
    assert "evaluate_on" not in tomllib.loads(text)
    settings = run_settings(file=tmp_path / "best.toml")
    best = found.ranked()[0]
    expected = search_asked.with_values(best.values)
    assert settings.method_settings == expected.method_settings
    assert settings.encoder_settings == expected.encoder_settings
    assert settings.stream_settings == expected.stream_settings
    assert settings.evaluate_on == "test"
    assert len(settings.seeds) == 6


def test_another_search_in_the_same_folder_is_rejected(tmp_path: Path) -> None:
    search(asked(seeds=(100,), sampler="grid"), out=tmp_path, n_trials=1, show_bars=False)
    with pytest.raises(SettingsError, match="sampler"):
        search(asked(seeds=(100,)), out=tmp_path, n_trials=1, show_bars=False)


def test_a_damaged_study_can_be_deleted_and_no_record_is_lost(tmp_path: Path) -> None:
    wanted = asked(seeds=(100,), space=("memory_iterations=1:2",), sampler="grid")
    found = search(wanted, out=tmp_path, show_bars=False)
    (tmp_path / STUDY).write_bytes(b"no database" * 200)
    with pytest.raises(RecordError) as caught:
        search(wanted, out=tmp_path, show_bars=False)
    assert str(tmp_path / STUDY) in str(caught.value)
    (tmp_path / STUDY).unlink()
    records = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    assert tried(search(wanted, out=tmp_path, show_bars=False)) == tried(found)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == records


def test_a_protocol_that_the_dataset_does_not_support_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="candidates"):
        search(
            Search(settings=asked().settings, space=asked().space, sampler="tpe", protocol="candidates"), out=tmp_path
        )
    assert not (tmp_path / STUDY).exists()


@pytest.mark.parametrize("ask", [["--evaluate-on", "test"], ["--set", "evaluate-on=test"], ["--config", "FILE"]])
def test_a_search_on_test_data_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str], ask: list[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('evaluate_on = "test"\n')
    ask = [str(file) if part == "FILE" else part for part in ask]
    assert main(["search", "--out", str(tmp_path / "out"), *ask]) == 2
    assert "a search uses validation data only" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bad_options_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spaces = [
        "--space",
        "temperature=0,1",
        "--space",
        "memory_iteration=1,2",
        "--space",
        "match_threshold=0.5,1.5",
    ]
    command = ["search", "--out", str(tmp_path / "out"), "--trials", "0", "--jobs", "0", *spaces]
    assert main(command) == 2
    said = capsys.readouterr().err
    for reason in (
        "--jobs: must be at least 1",
        "--trials: must be at least 1",
        "--space temperature=0,1: --set erda.temperature: must be at least 1e-06, got 0.0",
        "Did you mean 'memory_iterations'?",
        "--space match_threshold=0.5,1.5",
    ):
        assert reason in said
    assert main(["search", "--out", str(tmp_path / "out"), "--method", "erda,emr"]) == 2
    assert "a search is for one method" in capsys.readouterr().err


@pytest.mark.usefixtures("unpainted")
def test_the_command_prints_the_best_trial_and_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [f"--set={name}={value}" for name, value in SMALL.items()]
    command = ["search", *sets, "--seeds", "100", "--out", str(tmp_path), "--trials", "2"]
    assert main([*command, "--space", "memory_iterations=1,2", "--sampler", "grid"]) == 0
    said = capsys.readouterr().out
    assert "memory_iterations" in said
    assert f"erda run --config {tmp_path / 'best.toml'}" in said
    assert "erda search --set=n_tasks=2" in (tmp_path / "best.toml").read_text()
