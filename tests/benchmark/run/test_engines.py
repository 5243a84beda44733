"""Both engines do the same work, and a fault or a death costs one piece of it."""

from __future__ import annotations

import pytest
from toy_runs import double, double_but_die_at_three, double_but_trip_on_three

from erda.benchmark.run.engines import run_here, run_in_processes
from erda.errors import ErdaError, WriteError


def test_here_a_fault_is_reported_and_the_rest_goes_on() -> None:
    outcomes = list(run_here(double_but_trip_on_three, [1, 3, 4]))
    assert [outcome.result for outcome in outcomes] == [2, None, 8]
    assert str(outcomes[1].fault) == "three is bad"


def test_here_a_mistake_is_reported_with_its_traceback_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def halve(work: int, slot: int) -> float:
        return 6 / work

    outcomes = list(run_here(halve, [1, 0, 2]))
    assert [outcome.result for outcome in outcomes] == [6, None, 3]
    assert type(outcomes[1].fault) is ErdaError
    assert "ZeroDivisionError: division by zero" in str(outcomes[1].fault)
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "return 6 / work" in said


def test_here_ctrl_c_ends_it_all() -> None:
    def stopped(work: int, slot: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_here(stopped, [1, 2]))


def test_here_a_full_disk_ends_it_all() -> None:
    def full(work: int, slot: int) -> int:
        raise WriteError("Cannot write")

    with pytest.raises(WriteError):
        list(run_here(full, [1, 2]))


def test_processes_give_the_same_results() -> None:
    outcomes = list(run_in_processes(double, [1, 2, 3, 4], n_processes=2))
    assert sorted((outcome.work, outcome.result) for outcome in outcomes) == [(1, 2), (2, 4), (3, 6), (4, 8)]


def test_a_killed_process_costs_its_own_work_only() -> None:
    outcomes = {one.work: one for one in run_in_processes(double_but_die_at_three, [1, 3, 4, 5], n_processes=1)}
    assert "was killed" in str(outcomes[3].fault)
    assert [outcomes[work].result for work in (1, 4, 5)] == [2, 8, 10]


def test_a_fault_in_a_process_is_reported_as_itself() -> None:
    outcomes = {one.work: one for one in run_in_processes(double_but_trip_on_three, [3, 4], n_processes=1)}
    assert str(outcomes[3].fault) == "three is bad"
    assert outcomes[4].result == 8
