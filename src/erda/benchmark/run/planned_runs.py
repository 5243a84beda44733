"""Several runs: sequential, or in several processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from erda.benchmark.records import RECORD, Record
from erda.benchmark.run.engines import Outcome, run_here, run_in_processes
from erda.benchmark.run.loop import Parts, run, run_directory
from erda.benchmark.run.progress import check_same_experiment
from erda.errors import WriteError, one_line
from erda.files import cannot_write
from erda.settings.build import build_run_method, open_cache, open_run_stream, restore_run_method
from erda.settings.runs import Run, RunSettings


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


RunOutcome = Outcome[PlannedRun, Record]


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
    asked = settings.runs()
    for one in {one.method: one for one in asked}.values():
        check_same_experiment(out, one)
    return run_planned(
        [PlannedRun(one, out) for one in asked],
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
    on_outcome: Callable[[RunOutcome], None] | None = None,
) -> Finished:
    """Run planned runs, `n_processes` at once, each into its own folder; call `on_outcome` when one ends."""
    is_pool = n_processes > 1
    before = {one.folder for one in runs if one.is_finished}
    records: dict[Path, Record] = {}
    faults = []
    with shared_cache(cache, lambda: _common_folder(runs), needed=is_pool and bool(runs)) as shared:
        show_tasks = show_bars and not (is_pool and sys.stderr.isatty())
        bar = None if not show_tasks else int(len(runs) > 1)
        run_one = partial(_run_one, keep_method=keep_methods, bar=bar, cache=shared)
        outcomes = run_in_processes(run_one, runs, n_processes=n_processes) if is_pool else run_here(run_one, runs)
        for outcome in _shown(outcomes, runs) if show_bars and len(runs) > 1 else outcomes:
            if outcome.result is not None:
                records[outcome.work.folder] = outcome.result
            else:
                faults.append(f"{outcome.work.asked.title}: {outcome.fault}")
            if on_outcome is not None:
                on_outcome(outcome)
    found = tuple(records[one.folder] for one in runs if one.folder in records)
    return Finished(found, len(before & records.keys()), tuple(faults))


def _shown(outcomes: Iterable[RunOutcome], runs: Sequence[PlannedRun]) -> Iterator[RunOutcome]:
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


def _run_one(planned: PlannedRun, *, keep_method: bool, bar: int | None, cache: CacheSettings) -> Record:
    asked = planned.asked
    parts = Parts(
        stream=lambda: open_run_stream(asked),
        build=lambda: build_run_method(asked, cache=open_cache(cache.folder, cache.gigabytes)),
        restore=lambda place: restore_run_method(asked, place, cache=open_cache(cache.folder, cache.gigabytes)),
    )
    return run(asked, parts, out=planned.out, keep_method=keep_method, bar=bar)
