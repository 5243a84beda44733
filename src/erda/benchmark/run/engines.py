"""Execution of jobs: sequentially in this process, or in a pool of processes (Pebble).

Every engine yields an `Outcome` per job, in order of completion. A job that fails, or whose process is killed, is
reported and the other jobs continue. A full disk (`WriteError`) ends all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from erda.errors import EXTRAS, ErdaError, WriteError, not_installed

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Work, Result]):
    """Result of one job, or the fault that ended it."""

    work: Work
    result: Result | None
    fault: ErdaError | None = None


def outcome_of(work: Work, compute: Callable[[], Result]) -> Outcome[Work, Result]:
    """Call `compute` and turn an exception into a fault; print the traceback of an unexpected one."""
    try:
        return Outcome(work, compute())
    except WriteError:
        raise
    except ErdaError as fault:
        return Outcome(work, None, fault)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            return Outcome(work, None, ErdaError(not_installed([error.name])))
        print(getattr(error, "traceback", "") or traceback.format_exc(), file=sys.stderr)
        reason = (str(error).splitlines() or [""])[0]
        return Outcome(work, None, ErdaError(f"failed; its traceback is above. ({type(error).__name__}: {reason})"))


def run_here(function: Callable[[Work], Result], works: Sequence[Work]) -> Iterator[Outcome[Work, Result]]:
    """Run the jobs sequentially in this process."""
    for work in works:
        yield outcome_of(work, partial(function, work))


def run_in_processes(
    function: Callable[[Work], Result], works: Sequence[Work], *, n_processes: int
) -> Iterator[Outcome[Work, Result]]:
    """Run jobs in processes that share the cores evenly; a killed process fails only its own job and is replaced."""
    from pebble import ProcessExpired, ProcessPool

    context = multiprocessing.get_context("spawn")  # a fork of a process with threads (torch) may hang
    pool = ProcessPool(n_processes, initializer=_take_share_of_cores, initargs=[n_processes], context=context)
    try:
        futures: dict[Future[Result], Work] = {pool.schedule(function, args=[work]): work for work in works}
        for future in as_completed(futures):
            work, error = futures[future], future.exception()
            if isinstance(error, ProcessExpired):
                message = f"its process was killed; is there too little memory? (exit code {error.exitcode})"
                yield Outcome(work, None, ErdaError(message))
            else:
                yield outcome_of(work, future.result)
    finally:  # also on Ctrl-C, which workers ignore
        pool.stop()
        pool.join()


def _take_share_of_cores(n_processes: int) -> None:
    """Limit the threads of libraries loaded later, unless the user has set a limit."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // n_processes)))
