"""Where pieces of work happen: one after another in this process, or in a pool of processes (Pebble).

Every engine takes the same pieces of work and yields an `Outcome` for each, in the order in which they end. A piece
that fails, or whose process is killed, is reported; the others go on. A full disk (`WriteError`) ends all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from typing import Generic, TypeVar

from erda.errors import ErdaError, WriteError

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Work, Result]):
    """The result of one piece of work, or the fault that ended it."""

    work: Work
    result: Result | None
    fault: ErdaError | None = None


def outcome_of(work: Work, compute: Callable[[], Result]) -> Outcome[Work, Result]:
    """Call `compute` and turn what it raises into a fault; a bug of ours prints its traceback."""
    try:
        return Outcome(work, compute())
    except WriteError:
        raise
    except ErdaError as fault:
        return Outcome(work, None, fault)
    except Exception as error:
        print(getattr(error, "traceback", "") or traceback.format_exc(), file=sys.stderr)
        return Outcome(work, None, unexpected(error))


def unexpected(error: BaseException) -> ErdaError:
    """The fault for an exception that is a bug of ours and whose traceback was printed."""
    reason = (str(error).splitlines() or [""])[0]
    return ErdaError(f"failed; its traceback is above. ({type(error).__name__}: {reason})")


def run_here(function: Callable[[Work], Result], works: Sequence[Work]) -> Iterator[Outcome[Work, Result]]:
    """Run the pieces one after another in this process."""
    for work in works:
        yield outcome_of(work, lambda work=work: function(work))  # type: ignore[misc]


def run_in_processes(
    function: Callable[[Work], Result], works: Sequence[Work], *, n_processes: int
) -> Iterator[Outcome[Work, Result]]:
    """Run several pieces at once, each process with its share of the cores; `function` must be importable by name.

    A process that dies takes only its piece with it, and another takes its place.
    """
    from pebble import ProcessExpired, ProcessPool

    context = multiprocessing.get_context("spawn")  # a fork of a process with threads (torch) may hang
    pool = ProcessPool(n_processes, initializer=_take_share_of_cores, initargs=[n_processes], context=context)
    try:
        futures: dict[Future[Result], Work] = {pool.schedule(function, args=[work]): work for work in works}
        for future in as_completed(futures):
            work, error = futures[future], future.exception()
            if isinstance(error, ProcessExpired):
                said = f"its process was killed; is there too little memory? (exit code {error.exitcode})"
                yield Outcome(work, None, ErdaError(said))
            else:
                yield outcome_of(work, future.result)
    finally:  # also on Ctrl-C: workers ignore it, and are stopped here
        pool.stop()
        pool.join()


def _take_share_of_cores(n_processes: int) -> None:
    """Bound the threads of libraries that are loaded later; a number that the user has set stays."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // n_processes)))
