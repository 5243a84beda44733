"""Local engines: the same results in one process and in several; a fault or a killed process fails one job."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from toy_work import double_but_die_at_three, double_but_trip_on_three

from erda.benchmark.records import RECORD
from erda.benchmark.run import planned_runs
from erda.benchmark.run.planned_runs import explained, in_processes, run_experiment
from erda.errors import DataError, ErdaError, WriteError
from erda.settings.load import run_settings


def test_a_fault_of_erda_stays_as_it_is() -> None:
    with pytest.raises(DataError, match="three is bad"):
        explained(partial(double_but_trip_on_three, 3))


def test_a_bug_is_an_error_after_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ErdaError, match="its traceback is above"):
        explained(lambda: 6 / 0)
    assert "explained(lambda: 6 / 0)" in capsys.readouterr().err


def test_a_missing_extra_is_named_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> int:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    with pytest.raises(ErdaError, match=r"pip install 'erda\[train\]'$"):
        explained(missing)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WriteError("the disk is full")])
def test_ctrl_c_and_a_full_disk_end_all_runs(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(planned_runs, "run", stopped)
    with pytest.raises(type(error)):
        run_experiment(run_settings(methods="seqrun", encoder="bilstm", seeds=[100, 110]), out=tmp_path)


def test_a_killed_process_fails_only_its_own_job() -> None:
    calls = dict(in_processes(double_but_die_at_three, [1, 3, 4], n_processes=1))
    with pytest.raises(ErdaError, match="its process was killed"):
        explained(calls[3])
    assert [calls[work]() for work in (1, 4)] == [2, 8]


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
