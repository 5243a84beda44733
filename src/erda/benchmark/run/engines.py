"""Where runs happen: one after another in this process, or several at once in processes of this machine.

Every engine takes the same pieces of work and gives the same outcomes, in the order in which they end. It calls
`function(work, slot)`, where `slot` counts the places at which work is done at once (0 is the first). A piece that
fails, or whose process is killed, is reported and the rest goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from erda.errors import ErdaError, WriteError

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Work, Result]):
    """What became of one piece of work: a result, or the fault that ended it."""

    work: Work
    result: Result | None
    fault: ErdaError | None = None


def run_here(function: Callable[[Work, int], Result], works: Sequence[Work]) -> Iterator[Outcome[Work, Result]]:
    """One after another, in this process. A result that cannot be written ends it all: the next could not be either."""
    for work in works:
        outcome: Outcome[Work, Result]
        try:
            outcome = Outcome(work, function(work, 0))
        except WriteError:
            raise
        except ErdaError as fault:
            outcome = Outcome(work, None, fault)
        except Exception as error:
            traceback.print_exc()
            outcome = Outcome(work, None, mistake(error))
        yield outcome


def mistake(error: BaseException) -> ErdaError:
    """What is said of an exception that is no fault of the user's; whoever mends it needs the traceback as well."""
    reason = (str(error).splitlines() or [""])[0]
    return ErdaError(f"failed; its traceback is above. ({type(error).__name__}: {reason})")


@dataclass(slots=True)
class _Worker:
    slot: int
    process: BaseProcess
    connection: Connection
    work: Any = None


def run_in_processes(
    function: Callable[[Work, int], Result], works: Sequence[Work], *, n_processes: int
) -> Iterator[Outcome[Work, Result]]:
    """Several at once, each process with its share of the cores; `function` must be importable by name.

    A process that dies takes only its piece of work with it; a new one takes its place.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads (torch) may hang
    serve = partial(_serve, function=function, n_processes=n_processes, bars=context.RLock())
    waiting = list(reversed(works))
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < n_processes:
                slot = min(set(range(n_processes)) - {worker.slot for worker in workers})
                workers.append(_start(context, slot, serve))
                _hand_out(workers[-1], waiting)
            for connection in wait([worker.connection for worker in workers]):
                worker = next(one for one in workers if one.connection is connection)
                outcome, alive = _receive(worker)
                if outcome.fault is not None and isinstance(outcome.fault, WriteError):
                    raise outcome.fault
                if alive and waiting:
                    _hand_out(worker, waiting)
                else:
                    workers.remove(worker)
                    _stop(worker)
                yield outcome
    finally:
        for worker in workers:
            worker.process.terminate()
            _stop(worker)


def _start(context: SpawnContext, slot: int, serve: Callable[..., None]) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, slot), daemon=True)
    process.start()
    theirs.close()
    return _Worker(slot, process, ours)


def _stop(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.join(timeout=10)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _hand_out(worker: _Worker, waiting: list[Any]) -> None:
    worker.work = waiting.pop()
    try:
        worker.connection.send(worker.work)
    except OSError:  # it died before it could take it: `_receive` will say so
        return


def _receive(worker: _Worker) -> tuple[Outcome[Any, Any], bool]:
    try:
        result, fault = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(timeout=10)
        code = worker.process.exitcode or 0
        reason = "was killed; is there too little memory?" if code < 0 else "failed; its traceback is above."
        reason = f"its process {reason} (exit code {code})"
        return Outcome(worker.work, None, ErdaError(reason)), False
    return Outcome(worker.work, result, fault), True


def _serve(
    connection: Connection, slot: int, *, function: Callable[[Any, int], Any], n_processes: int, bars: Any
) -> None:
    """The life of a worker process: take work until there is none. `bars` is the lock under which bars are drawn."""
    try:
        import torch

        tqdm.set_lock(bars)
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // n_processes))
        while True:
            work = connection.recv()
            answer: tuple[Any, ErdaError | None]
            try:
                answer = (function(work, slot), None)
            except ErdaError as fault:
                answer = (None, fault)
            connection.send(answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
