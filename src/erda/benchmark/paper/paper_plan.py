"""Plan and run the paper's tables with the user's changes, which are validated before the first run starts.

All invalid changes are reported in one `SettingsError`. Tables and rows whose data, weights or corpus are missing on
this machine are skipped and reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from erda.benchmark.paper.paper_tables import PaperRow, PaperTable
from erda.benchmark.run.planned_runs import CacheSettings, Finished, PlannedRun, run_planned
from erda.errors import (
    DataError,
    ErdaError,
    ModelError,
    SettingsError,
    join_faults,
    merge_faults,
    one_line,
    unknown_name,
)
from erda.methods import METHODS
from erda.settings.build import build_run_encoder, open_run_stream
from erda.settings.load import Layer, given_values, layers_of, preset_names, settings_from
from erda.settings.runs import RUN_KINDS, Run, RunSettings

NO_CHANGES: Layer = {}
INSTALL = "install packages/erda-peers"
FIXED = ("methods", "encoder", "order_family", "shots", "allow_seen")  # fixed by each table


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """Runs of some tables without duplicates, and reasons for skipped tables and rows."""

    runs: tuple[PlannedRun, ...]
    left_out: tuple[str, ...]
    cache: CacheSettings


def run_paper(
    tables: Iterable[PaperTable], *, out: Path, changes: Layer = NO_CHANGES, n_processes: int = 1, show: bool = True
) -> Finished:
    """Run every row of the tables; report faults and continue. Runs of several tables run once, finished ones never.

    `changes` apply to every table: fewer seeds, another dataset, smaller streams. `show` prints skipped tables and a
    progress bar on stderr.
    """
    plan = plan_runs(tables, out=out, changes=changes)
    if not plan.runs:
        raise SettingsError(f"No table can be run.\n{join_faults(plan.left_out)}")
    for line in plan.left_out if show else ():
        print(one_line(f"skipped: {line}"), file=sys.stderr)
    return run_planned(plan.runs, cache=plan.cache, n_processes=n_processes, show_bars=show)


def plan_runs(tables: Iterable[PaperTable], *, out: Path, changes: Layer = NO_CHANGES) -> PaperPlan:
    """Plan all runs of the tables, stream by stream; unfinished ones need their data and weights on this machine."""
    tables, left_out = _installed(tables)
    check_changes(tables, changes)
    runs: dict[Path, PlannedRun] = {}
    wrong: list[str] = []
    cache = CacheSettings()
    given = {name: one.value for name, one in changes.items()}
    known: dict[object, ErdaError | None] = {}
    for table in tables:
        own: list[PlannedRun] = []
        for row in table.rows:
            if not row.corpus or given.get("corpus"):
                settings = row_settings(table, row, changes)
                cache = max(cache, CacheSettings.of(settings), key=lambda one: one.gigabytes)
                folder = out / table.folder_on(given.get("dataset")) / row.variant
                own += [PlannedRun(run, folder) for run in settings.runs()]
        if without := [row.label for row in table.rows if row.corpus and not given.get("corpus")]:
            left_out.append(f"{table.name}: rows that need a corpus ({', '.join(without)}); give --corpus.")
        own.sort(key=lambda one: one.asked.seed)
        asked = {one.asked.seed: one.asked for one in reversed(own) if not one.is_finished}
        checked = [asked[seed] for seed in sorted(asked)][: None if "seeds" in given else 1]
        if fault := next(filter(None, (_fault(run, known) for run in checked)), None):
            (left_out if isinstance(fault, DataError | ModelError) else wrong).append(f"{table.name}: {fault}")
            continue
        for one in own:
            runs.setdefault(one.folder, one)
    if wrong:
        raise SettingsError(join_faults(merge_faults(wrong)))
    return PaperPlan(tuple(runs.values()), tuple(merge_faults(left_out)), cache)


def _installed(tables: Iterable[PaperTable]) -> tuple[tuple[PaperTable, ...], list[str]]:
    """Split off rows whose method or preset belongs to a package that is not installed: return tables and messages."""
    kept, left_out, presets = list[PaperTable](), list[str](), preset_names()
    for table in tables:
        rows = tuple(row for row in table.rows if row.method in METHODS and table.preset in presets)
        absent = [row.label for row in table.rows if row not in rows]
        kept += [replace(table, rows=rows)] if rows else []
        if absent:
            left_out.append(f"{table.name}: rows of a package that is not installed ({', '.join(absent)}); {INSTALL}.")
    return tuple(kept), left_out


def row_settings(table: PaperTable, row: PaperRow, changes: Layer = NO_CHANGES) -> RunSettings:
    """Validated settings of one row."""
    own = given_values({"methods": row.method, "seeds": table.seeds or None, **table.settings, **row.settings})
    fits = {name: one for name, one in changes.items() if row.corpus or name != "corpus"}
    return settings_from([*layers_of(table.preset), {**own, **fits}])


# -- the user's changes ------------------------------------------------------------------------------------------------


def check_changes(tables: Sequence[PaperTable], changes: Layer) -> None:
    """Reject changes of anything but streams, seeds and the machine, and of what a table fixes; all faults at once."""
    faults, good = [], dict(changes)
    for name, one in changes.items():
        own = [table.name for table in tables if name in table.settings]
        if name in FIXED or name not in RUN_KINDS or own:
            known = [known for known in RUN_KINDS if known not in FIXED]
            said = "" if own or name in FIXED or "." in name else f" {unknown_name('setting', name, known)}"
            faults.append(
                f"{one.origin}: fixed by {', '.join(own) or 'the tables'}; use `erda run` for other runs.{said}"
            )
            del good[name]
    try:
        settings_from([*layers_of(tables[0].preset if tables else None), good])
    except SettingsError as fault:
        faults += str(fault).splitlines()
    if faults:
        raise SettingsError(join_faults(faults))


# -- data and weights of this machine ----------------------------------------------------------------------------------


def _fault(run: Run, known: dict[object, ErdaError | None]) -> ErdaError | None:
    """Fault that prevents a run on this machine: of its stream, or of its encoder. Each is tried once (`known`)."""
    stream = (run.dataset, run.shots, run.order_family, run.seed, str(run.settings["stream"]))
    encoder = (run.encoder, str(run.settings["encoder"]))
    parts: tuple[tuple[object, Callable[[Run], object]], ...]
    parts = ((stream, open_run_stream), (encoder, build_run_encoder))
    for part, make in parts:
        if part not in known:
            try:
                make(replace(run, device="cpu"))
                known[part] = None
            except ErdaError as fault:
                known[part] = fault
        if known[part]:
            return known[part]
    return None
