"""Several methods on several streams: one after another, in several processes, or on the machines of a Ray cluster."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from erda.benchmark.experiments import refuse_mixing
from erda.benchmark.records import RECORD, Record, read_record
from erda.benchmark.run.engines import Outcome, run_here, run_in_processes
from erda.benchmark.run.loop import Parts, run, run_directory
from erda.benchmark.run.progress import FOLDER, check_same_experiment, read_learned, run_lock
from erda.errors import ErdaError, SettingsError, WriteError, unknown_name
from erda.files import write_bytes
from erda.settings.build import build_run_method, open_cache, open_run_stream, restore_run_method
from erda.settings.runs import Run, RunSettings

ENGINES = ("local", "ray")
MOST_SENT = 512  # runs under way on a cluster; a process may have 1,024 open files where nobody raised that


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run and the folder that its own folder METHOD/SEED goes into."""

    asked: Run
    out: Path

    @property
    def folder(self) -> Path:
        """Where its record goes."""
        return run_directory(self.out, self.asked)

    @property
    def is_finished(self) -> bool:
        """Whether it has a record already."""
        return (self.folder / RECORD).exists()


RunOutcome = Outcome[PlannedRun, Record]
RunOne = Callable[[PlannedRun, int], Record]


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Where what frozen layers compute is kept ("": in memory), up to which size."""

    folder: str = ""
    gigabytes: float = 0.0

    @classmethod
    def of(cls, settings: RunSettings) -> CacheSettings:
        """As the settings say."""
        return cls(settings.cache_dir, settings.cache_gb)


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of all runs: their records in the order asked, how many were there already, what failed and why."""

    records: tuple[Record, ...]
    n_found: int
    faults: tuple[str, ...]


def run_all(
    settings: RunSettings,
    *,
    out: Path,
    n_processes: int | None = None,
    engine: str = "local",
    address: str | None = None,
    keep_methods: bool = False,
    show_bars: bool = True,
) -> Finished:
    """Run every method on every stream; what is finished is read, what fails is reported and the rest goes on."""
    asked = settings.runs()
    for one in {one.method: one for one in asked}.values():
        check_same_experiment(out, one)
    return run_many(
        [PlannedRun(one, out) for one in asked],
        cache=CacheSettings.of(settings),
        n_processes=n_processes,
        engine=engine,
        address=address,
        keep_methods=keep_methods,
        show_bars=show_bars,
    )


def run_many(
    runs: Sequence[PlannedRun],
    *,
    cache: CacheSettings,
    n_processes: int | None = None,
    engine: str = "local",
    address: str | None = None,
    keep_methods: bool = False,
    show_bars: bool = True,
    on_outcome: Callable[[RunOutcome], None] | None = None,
) -> Finished:
    """Runs, each into a folder of its own choice; `on_outcome` is told of each as it ends.

    `n_processes` are at work at once (None: one here, as many as there is room for on Ray). `address` is that of a Ray
    cluster.
    """
    if engine not in ENGINES:
        raise SettingsError(unknown_name("engine", engine, ENGINES))
    there = {one.folder for one in runs if one.is_finished}
    n_here = n_processes or 1
    several = engine == "local" and n_here > 1
    shared = _common_folder(one.out for one in runs) / ".frozen" if several and runs and not cache.folder else None
    if shared:
        cache = replace(cache, folder=str(shared))  # processes meet in a folder
    first_bar = None if not show_bars or engine == "ray" else int(several)
    run_one = partial(_run_one, keep_method=keep_methods, first_bar=first_bar, cache=cache)
    outcomes: Iterable[RunOutcome]
    if engine == "ray":
        outcomes = _run_far(run_one, runs, address=address, n_at_once=n_processes)
    elif several:
        outcomes = run_in_processes(run_one, runs, n_processes=n_here)
    else:
        outcomes = run_here(run_one, runs)
    if show_bars and (several or engine == "ray"):
        outcomes = _shown(outcomes, len(runs), lines=engine == "ray")  # processes of this machine tell of each task
    records: dict[Path, Record] = {}
    faults = []
    try:
        for outcome in outcomes:
            if outcome.result is not None:
                records[outcome.work.folder] = outcome.result
            else:
                faults.append(f"{outcome.work.asked.title}: {outcome.fault}")
            if on_outcome is not None:
                on_outcome(outcome)
    finally:
        if shared:
            shutil.rmtree(shared, ignore_errors=True)
    found = tuple(records[one.folder] for one in runs if one.folder in records)
    return Finished(found, len(there & records.keys()), tuple(faults))


def _shown(outcomes: Iterable[RunOutcome], n_runs: int, *, lines: bool) -> Iterator[RunOutcome]:
    """The outcomes, with a bar on a terminal; elsewhere with a line for each, where these are wanted."""
    with tqdm(total=n_runs, unit="run", position=0, disable=None) as bar:
        for number, outcome in enumerate(outcomes, start=1):
            bar.update()
            if bar.disable and lines:
                became = "done" if outcome.result is not None else "failed"
                print(f"{number} of {n_runs}: {outcome.work.asked.title}: {became}", file=sys.stderr)
            yield outcome


def _common_folder(folders: Iterable[Path]) -> Path:
    return Path(os.path.commonpath([folder.absolute() for folder in folders]))


def _run_one(
    planned: PlannedRun, slot: int, *, keep_method: bool, first_bar: int | None, cache: CacheSettings
) -> Record:
    """Do one run; its bar stands `slot` lines below the first one (None: there are none)."""
    asked = planned.asked
    parts = Parts(
        stream=lambda: open_run_stream(asked),
        build=lambda: build_run_method(asked, cache=open_cache(cache.folder, cache.gigabytes)),
        restore=lambda place: restore_run_method(asked, place, cache=open_cache(cache.folder, cache.gigabytes)),
    )
    bar = None if first_bar is None else first_bar + slot
    return run(asked, parts, out=planned.out, keep_method=keep_method, bar=bar)


# -- runs on other machines --------------------------------------------------------------------------------------------


def _run_far(
    run_one: RunOne, runs: Sequence[PlannedRun], *, address: str | None, n_at_once: int | None
) -> Iterator[RunOutcome]:
    """Runs on a Ray cluster, whose nodes do not see OUT: their files come home, and are written here.

    Finished runs are read here and not sent. A run that is sent begins at its first task. It is locked from then until
    its files are home, which takes an open file; so no more than `MOST_SENT` are under way at once.
    """
    from erda.benchmark.run.ray_engine import run_on_ray

    finished = [one for one in runs if one.is_finished]
    yield from run_here(run_one, finished)
    waiting = [one for one in runs if one not in finished]
    n_gpus = int(any(one.asked.device.startswith("cuda") for one in waiting))
    n_at_once = min(n_at_once or MOST_SENT, MOST_SENT)
    kept_here: deque[RunOutcome] = deque()
    locks: dict[Path, ExitStack] = {}
    try:
        sent = _locked_runs(run_one, waiting, locks, kept_here)
        run_away = partial(_run_away, run_one)
        for outcome in run_on_ray(run_away, sent, address=address, n_gpus_each=n_gpus, n_at_once=n_at_once):
            folder = outcome.work.folder
            with locks.pop(folder):
                record = None if outcome.result is None else _bring_home(folder, outcome.result)
            yield Outcome(outcome.work, record, outcome.fault)
            while kept_here:
                yield kept_here.popleft()
    finally:
        for lock in locks.values():
            lock.close()
    yield from kept_here


def _locked_runs(
    run_one: RunOne, runs: Iterable[PlannedRun], locks: dict[Path, ExitStack], kept_here: deque[RunOutcome]
) -> Iterator[PlannedRun]:
    """Runs to send, each locked just before it is handed out; the lock goes to `locks`, by the folder of the run.

    What cannot be sent, and what another process has finished meanwhile, goes to `kept_here`.
    """
    for planned in runs:
        folder = planned.folder
        with ExitStack() as lock:
            try:
                lock.enter_context(run_lock(folder))
                begun = read_learned(folder / FOLDER)
                if begun is not None:
                    refuse_mixing(folder, then=begun.asked, now=planned.asked)
            except WriteError:
                raise
            except ErdaError as fault:
                kept_here.append(Outcome(planned, None, fault))
                continue
            if planned.is_finished:
                kept_here.extend(run_here(run_one, [planned]))
                continue
            locks[folder] = lock.pop_all()
        yield planned


def _run_away(run_one: RunOne, planned: PlannedRun, slot: int) -> dict[str, bytes]:
    """Run into a folder that nobody else sees; what `run` leaves there, by relative path."""
    with tempfile.TemporaryDirectory(prefix="erda-") as place:
        moved = replace(planned, out=Path(place))
        run_one(moved, slot)
        folder = moved.folder
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _bring_home(folder: Path, files: Mapping[str, bytes]) -> Record:
    """Write the files of a finished run, its record last of all: what is cut short counts as not finished."""
    for name in sorted(files, key=lambda name: name == RECORD):
        write_bytes(folder / name, files[name])
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return read_record(folder)
