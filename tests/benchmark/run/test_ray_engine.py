"""Runs on a real Ray cluster of two local nodes: the same records as without Ray, and killed workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from erda.benchmark.records import RECORD
from erda.benchmark.run.ray_engine import TASK
from ray_cluster import BIN, processes_with, run_command, two_nodes

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
SMALL = ["--encoder", "bilstm", "--set", "n_tasks=2", "--set", "encoder.hidden_size=8"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    with two_nodes() as found:
        yield found


@pytest.fixture(scope="module")
def outcomes(cluster: tuple[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Outcomes of the seven jobs of `ray_run_driver.py`."""
    address, environment = cluster
    out = tmp_path_factory.mktemp("out") / "found.json"
    run_command([sys.executable, str(Path(__file__).with_name("ray_run_driver.py")), address, str(out)], environment)
    return json.loads(out.read_text())


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def record(run: Path) -> dict[str, object]:
    value = json.loads((run / RECORD).read_text())
    del value["seconds"], value["peak_memory_mb"], value["versions"], value["seal"]  # the seal covers these fields
    return value


def test_jobs_run_on_both_nodes_in_the_folder_of_the_driver(outcomes: dict[str, Any]) -> None:
    results = [outcomes[number][0] for number in "1267"]
    assert [result[:3] for result in results] == [[2 * n, "here", str(Path.cwd())] for n in (1, 2, 6, 7)]
    assert len({result[3] for result in results}) == 2


def test_a_fault_a_killed_worker_and_a_bug_fail_only_their_own_jobs(outcomes: dict[str, Any]) -> None:
    assert outcomes["3"][:2] == [None, "DataError"]
    assert outcomes["3"][2].startswith("three is bad (on node ")
    assert outcomes["4"][:2] == [None, "ErdaError"]
    assert "its worker was killed" in outcomes["4"][2]
    assert outcomes["5"][:2] == [None, "ErdaError"]
    assert "ValueError: an unexpected error" in outcomes["5"][2]


def test_a_job_that_fits_no_node_is_rejected(outcomes: dict[str, Any]) -> None:
    assert "no node of the Ray cluster has 50 CPU" in outcomes["too large"]


def test_the_command_writes_the_same_records_as_without_ray(
    cluster: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, environment = cluster
    command = [str(BIN / "erda"), "run", "--method", "erda,seqrun", "--seeds", "100", *SMALL, "--keep-methods", "--out"]
    run_command([*command, str(tmp_path / "here")], environment)
    far = [*command, str(tmp_path / "far"), "--engine", "ray", "--address", address]
    run_command(far, environment)
    here, there = (files(tmp_path / name) for name in ("here", "far"))
    assert sorted(here) == sorted(there)
    assert [name for name in here if here[name] != there[name]] == [name for name in here if name.endswith(RECORD)]
    for method in ("erda", "seqrun"):
        assert record(tmp_path / "here" / method / "100") == record(tmp_path / "far" / method / "100")
    (tmp_path / "far/seqrun/100" / RECORD).unlink()
    assert "Runs done: 1; there already: 1." in run_command(far, environment)
    assert files(tmp_path / "far")["erda/100/record.json"] == there["erda/100/record.json"]


def test_a_killed_worker_fails_one_run_and_the_same_command_completes_it(
    cluster: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, environment = cluster
    few = ["--method", "seqrun", "--seeds", "100,110,120", *SMALL, "--set", "epochs=30"]
    command = [str(BIN / "erda"), "run", *few, "--out", str(tmp_path), "--engine", "ray", "--address", address]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        killed: list[int] = []
        while not killed and process.poll() is None:
            killed = sorted(
                {*processes_with(f"ray::{TASK}")} & {*processes_with(token_of(environment), what="environ")}
            )
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            os.kill(killed[0], signal.SIGKILL)
        said = process.communicate(timeout=300)[1]
    assert process.returncode == 2, said
    assert "Runs that failed: 1" in said
    assert "its worker was killed" in said
    assert len(list(tmp_path.rglob(RECORD))) == 2
    assert not list(tmp_path.rglob(".lock"))
    assert "Runs done: 1; there already: 2." in run_command(command, environment)


def token_of(environment: dict[str, str]) -> str:
    return environment["RAY_AUTH_TOKEN"]
