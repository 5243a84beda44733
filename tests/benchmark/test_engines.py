"""Both engines do the same work, and a fault or a death costs one piece of it."""

from __future__ import annotations

import pytest
from toy_runs import double, double_but_die_at_three, double_but_trip_on_three

from erda.benchmark.engines import run_here, run_in_processes
from erda.benchmark.records import WriteError


def test_here_a_fault_is_reported_and_the_rest_goes_on() -> None:
    outcomes = list(run_here(double_but_trip_on_three, [1, 3, 4]))
    assert [outcome.result for outcome in outcomes] == [2, None, 8]
    assert str(outcomes[1].fault) == "three is bad"


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
