"""Local engines: the same results in one process and in several; a fault or a killed process fails one job."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_work import double_but_die_at_three, double_but_trip_on_three

from erda.benchmark.records import RECORD
from erda.benchmark.run.planned_runs import run_here, run_in_processes
from erda.errors import DataError, ErdaError, WriteError


def test_one_process_reports_a_fault_and_continues() -> None:
    outcomes = list(run_here(double_but_trip_on_three, [1, 3, 4]))
    assert [outcome.result for outcome in outcomes] == [2, None, 8]
    assert isinstance(outcomes[1].fault, DataError)


def test_one_process_prints_the_traceback_of_a_bug_and_continues(capsys: pytest.CaptureFixture[str]) -> None:
    def halve(work: int) -> float:
        return 6 / work

    outcomes = list(run_here(halve, [1, 0, 2]))
    assert [outcome.result for outcome in outcomes] == [6, None, 3]
    assert type(outcomes[1].fault) is ErdaError
    assert "return 6 / work" in capsys.readouterr().err


def test_a_missing_extra_is_named_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def missing(work: int) -> int:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    (outcome,) = run_here(missing, [1])
    assert str(outcome.fault).endswith("pip install 'erda[train]'")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WriteError("the disk is full")])
def test_ctrl_c_and_a_full_disk_end_all_jobs(error: BaseException) -> None:
    def stopped(work: int) -> int:
        raise error

    with pytest.raises(type(error)):
        list(run_here(stopped, [1, 2]))


def test_a_killed_process_fails_only_its_own_job() -> None:
    outcomes = {one.work: one for one in run_in_processes(double_but_die_at_three, [1, 3, 4], n_processes=1)}
    assert type(outcomes[3].fault) is ErdaError
    assert [outcomes[work].result for work in (1, 4)] == [2, 8]


@pytest.mark.long
def test_ctrl_c_stops_every_process_and_the_same_command_runs_again(tmp_path: Path) -> None:
    few = ["--method", "seqrun", "--encoder", "bilstm", "--seeds", "100,110", "--set", "encoder.hidden_size=8"]
    command = [sys.executable, "-m", "erda", "run", *few, "--out", str(tmp_path), "--jobs", "2"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        signal.signal(signal.SIGINT, before)
        while len(list(tmp_path.rglob(".lock"))) < 2 and process.poll() is None:  # both workers have started
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # also to the workers, as a terminal does
        said = process.communicate(timeout=200)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    for _ in range(300):  # until its process group is empty; Python's resource tracker ends last
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("a process of the pool is left")
    subprocess.run(command, check=True, capture_output=True)
    assert len(list(tmp_path.rglob(RECORD))) == 2
