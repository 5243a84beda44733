"""Several runs: sequential, or in a pool of processes (Pebble).

A run that fails, or whose process is killed, is reported and the others continue. A full disk (`WriteError`) ends all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from erda.benchmark.experiments import reject_mixing
from erda.benchmark.records import RECORD, Record, read_record
from erda.benchmark.run.loop import run, run_directory
from erda.errors import EXTRAS, ErdaError, WriteError, not_installed, one_line
from erda.files import cannot_write
from erda.settings.build import build_run_method, open_cache, open_run_stream
from erda.settings.runs import Run, RunSettings

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run and its output folder, which will contain METHOD/SEED."""

    asked: Run
    out: Path

    @property
    def folder(self) -> Path:
        """Folder of its record."""
        return run_directory(self.out, self.asked)

    @property
    def is_finished(self) -> bool:
        """Whether the run has a record."""
        return (self.folder / RECORD).exists()


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Folder of the cache of frozen layers ("" is in memory) and its maximum size."""

    folder: str = ""
    gigabytes: float = 0.0

    @classmethod
    def of(cls, settings: RunSettings) -> CacheSettings:
        """Cache settings of an experiment."""
        return cls(settings.cache_dir, settings.cache_gb)


@dataclass(frozen=True, slots=True)
class Finished:
    """Records in the order of the runs, the number of records that existed before, and faults of failed runs."""

    records: tuple[Record, ...]
    n_found: int
    faults: tuple[str, ...]

    @property
    def n_new(self) -> int:
        """Number of runs that were not there before."""
        return len(self.records) - self.n_found


def run_experiment(
    settings: RunSettings, *, out: Path, n_processes: int = 1, keep_methods: bool = False, show_bars: bool = True
) -> Finished:
    """Run every method of the settings on every stream; read finished runs, report failed ones."""
    runs, cache = [PlannedRun(one, out) for one in settings.runs()], CacheSettings.of(settings)
    return run_planned(runs, cache=cache, n_processes=n_processes, keep_methods=keep_methods, show_bars=show_bars)


def run_planned(
    runs: Sequence[PlannedRun],
    *,
    cache: CacheSettings,
    n_processes: int = 1,
    keep_methods: bool = False,
    show_bars: bool = True,
) -> Finished:
    """Run planned runs, `n_processes` at once, each into its own folder."""
    is_pool = n_processes > 1
    runs, faults = _without_mixed(runs)
    before = {one.folder for one in runs if one.is_finished}
    records: dict[Path, Record] = {}
    with shared_cache(cache, runs, needed=is_pool and bool(runs)) as shared:
        run_one = partial(_run_one, keep_method=keep_methods, bar=show_bars and not is_pool, cache=shared)
        here = ((one, partial(run_one, one)) for one in runs)
        calls = in_processes(run_one, runs, n_processes=n_processes) if is_pool else here
        with tqdm(total=len(runs), unit="run", position=0, disable=None if show_bars else True) as bar:
            for number, (one, call) in enumerate(calls, start=1):
                try:
                    records[one.folder] = explained(call)
                except WriteError:
                    raise
                except ErdaError as fault:
                    faults.append(f"{one.asked.title}: {fault}")
                bar.update()
                if show_bars and bar.disable:  # not on a terminal: nohup, CI
                    name = one.folder.absolute().relative_to(_common_folder(runs))
                    ended = "done" if one.folder in records else "failed"
                    print(one_line(f"{number} of {len(runs)}: {name}: {ended}"), file=sys.stderr, flush=True)
    found = tuple(records[one.folder] for one in runs if one.folder in records)
    return Finished(found, len(before & records.keys()), tuple(faults))


@contextmanager
def shared_cache(cache: CacheSettings, runs: Sequence[PlannedRun], *, needed: bool) -> Iterator[CacheSettings]:
    """Cache that several processes can share: the user's folder, or a temporary one beside the runs."""
    if not needed or cache.folder:
        yield cache
        return
    place = _common_folder(runs)
    try:
        place.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".frozen-", dir=place, ignore_cleanup_errors=True)
    except OSError as fault:
        raise WriteError(cannot_write(place, fault)) from fault
    with folder as name:
        yield replace(cache, folder=name)


def _common_folder(runs: Sequence[PlannedRun]) -> Path:
    return Path(os.path.commonpath([one.out.absolute() for one in runs]))


def _run_one(planned: PlannedRun, *, keep_method: bool, bar: bool, cache: CacheSettings) -> Record:
    return run(
        planned.asked,
        open_stream=partial(open_run_stream, planned.asked),
        build=lambda: build_run_method(planned.asked, cache=open_cache(cache.folder, cache.gigabytes)),
        out=planned.out,
        keep_method=keep_method,
        bar=bar,
    )


def _without_mixed(runs: Sequence[PlannedRun]) -> tuple[list[PlannedRun], list[str]]:
    """Runs, less the unfinished ones of methods whose folder holds other settings; and the faults of these methods."""
    faults: dict[tuple[Path, str], str] = {}
    for one in {(one.out, one.asked.method): one for one in runs if not one.is_finished}.values():
        try:
            check_same_experiment(one.out, one.asked)
        except ErdaError as fault:
            faults[one.out, one.asked.method] = f"{one.asked.method}: {fault}"
    return [one for one in runs if (one.out, one.asked.method) not in faults], list(faults.values())


def check_same_experiment(out: Path, asked: Run) -> None:
    """Reject an output folder that holds runs of another experiment; skip unreadable records."""
    for path in sorted(out.glob(f"*/*/{RECORD}")):
        try:
            then = read_record(path)
        except ErdaError:
            continue
        reject_mixing(path.parent, then=then, now=asked)


# -- processes ---------------------------------------------------------------------------------------------------------


def explained(call: Callable[[], Result]) -> Result:
    """Call a job; an exception becomes an error of erda. Print the traceback of an unexpected one."""
    try:
        return call()
    except ErdaError:
        raise
    except Exception as error:
        if hasattr(error, "exitcode"):  # Pebble's ProcessExpired
            message = f"its process was killed; is there too little memory? (exit code {error.exitcode})"
            raise ErdaError(message) from None
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            raise ErdaError(not_installed([error.name])) from None
        print(getattr(error, "traceback", "") or traceback.format_exc(), file=sys.stderr)
        reason = (str(error).splitlines() or [""])[0]
        raise ErdaError(f"failed; its traceback is above. ({type(error).__name__}: {reason})") from None


def in_processes(
    function: Callable[[Work], Result], works: Sequence[Work], *, n_processes: int
) -> Iterator[tuple[Work, Callable[[], Result]]]:
    """Run jobs in processes that share the cores evenly; yield each finished job with the call of its result.

    A killed process fails only its own job and is replaced.
    """
    from pebble import ProcessPool

    context = multiprocessing.get_context("spawn")  # a fork of a process with threads (torch) may hang
    pool = ProcessPool(n_processes, initializer=_take_share_of_cores, initargs=[n_processes], context=context)
    try:
        with _blocked_ctrl_c():
            futures: dict[Future[Result], Work] = {pool.schedule(function, args=[work]): work for work in works}
        yield from ((futures[future], future.result) for future in as_completed(futures))
    finally:  # also on Ctrl-C, which workers ignore
        pool.stop()
        pool.join()


@contextmanager
def _blocked_ctrl_c() -> Iterator[None]:
    """Block SIGINT in all threads and processes that begin meanwhile, so that none prints a traceback of its start."""
    if os.name == "nt":
        yield
        return
    resource_tracker.ensure_running()  # it unblocks SIGINT when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_share_of_cores(n_processes: int) -> None:
    """Limit the threads of libraries loaded later, unless the user has set a limit."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // n_processes)))
