"""Several runs: sequential, or in a pool of processes (Pebble).

A run that fails, or whose process is killed, is reported and the others continue. A full disk (`WriteError`) ends all.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

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
class Outcome(Generic[Work, Result]):
    """Result of one job, or the fault that ended it."""

    work: Work
    result: Result | None
    fault: ErdaError | None = None


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


def run_experiment(
    settings: RunSettings,
    *,
    out: Path,
    n_processes: int = 1,
    keep_methods: bool = False,
    show_bars: bool = True,
) -> Finished:
    """Run every method of the settings on every stream; read finished runs, report failed ones."""
    return run_planned(
        [PlannedRun(one, out) for one in settings.runs()],
        cache=CacheSettings.of(settings),
        n_processes=n_processes,
        keep_methods=keep_methods,
        show_bars=show_bars,
    )


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
    with shared_cache(cache, lambda: _common_folder(runs), needed=is_pool and bool(runs)) as shared:
        run_one = partial(_run_one, keep_method=keep_methods, bar=show_bars and not is_pool, cache=shared)
        outcomes = run_in_processes(run_one, runs, n_processes=n_processes) if is_pool else run_here(run_one, runs)
        for outcome in _shown(outcomes, runs) if show_bars and runs else outcomes:
            if outcome.result is not None:
                records[outcome.work.folder] = outcome.result
            else:
                faults.append(f"{outcome.work.asked.title}: {outcome.fault}")
    found = tuple(records[one.folder] for one in runs if one.folder in records)
    return Finished(found, len(before & records.keys()), tuple(faults))


def _shown(
    outcomes: Iterable[Outcome[PlannedRun, Record]], runs: Sequence[PlannedRun]
) -> Iterator[Outcome[PlannedRun, Record]]:
    """Yield the outcomes and show a bar on a terminal, otherwise (nohup, CI) one line per run."""
    top = _common_folder(runs)
    with tqdm(total=len(runs), unit="run", position=0, disable=None) as bar:
        for number, outcome in enumerate(outcomes, start=1):
            bar.update()
            if bar.disable:
                name = outcome.work.folder.absolute().relative_to(top)
                ended = "done" if outcome.result is not None else "failed"
                print(one_line(f"{number} of {len(runs)}: {name}: {ended}"), file=sys.stderr, flush=True)
            yield outcome


@contextmanager
def shared_cache(cache: CacheSettings, out: Callable[[], Path], *, needed: bool) -> Iterator[CacheSettings]:
    """Cache that several processes can share: the user's folder, or a temporary one with a random name in `out()`."""
    if not needed or cache.folder:
        yield cache
        return
    place = out()
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
