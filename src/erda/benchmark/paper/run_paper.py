"""Run the paper's tables: runs shared by several tables run once, and finished runs are not repeated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.paper.paper_plan import NO_CHANGES, plan_runs
from erda.benchmark.paper.paper_sections import note_tables
from erda.benchmark.paper.paper_tables import PaperTable
from erda.benchmark.paper.tsne_vectors import keep_vectors
from erda.benchmark.run.planned_runs import PlannedRun, run_planned
from erda.benchmark.run.progress import check_same_experiment
from erda.errors import ErdaError, SettingsError, join_faults, one_line
from erda.settings.load import Layer


@dataclass(frozen=True, slots=True)
class PaperRun:
    """Outcome of the tables: numbers of new and existing runs, faults, and skipped tables and rows."""

    n_runs: int
    n_found: int
    faults: tuple[str, ...]
    left_out: tuple[str, ...]


def run_paper(
    tables: Sequence[PaperTable],
    *,
    out: Path,
    changes: Layer = NO_CHANGES,
    n_processes: int = 1,
    show: bool = True,
) -> PaperRun:
    """Run every row of the tables and save the vectors for t-SNE; report faults and continue.

    `changes` apply to every table: fewer seeds, another dataset, smaller streams. `show` prints skipped tables and a
    progress bar on stderr.
    """
    plan = plan_runs(tables, out=out, changes=changes)
    if not plan.runs:
        raise SettingsError(f"No table can be run.\n{join_faults(plan.left_out)}")
    for line in plan.left_out if show else ():
        print(one_line(f"skipped: {line}"), file=sys.stderr)
    runs, faults = _reject_mixed(plan.runs)
    note_tables(out, tables)
    finished = run_planned(runs, cache=plan.cache, n_processes=n_processes, show_bars=show)
    faults += finished.faults
    for one in plan.embedded:
        if one in runs and one.is_finished:
            try:
                keep_vectors(one)
            except ErdaError as fault:
                faults.append(f"{one.asked.title}, vectors: {fault}")
    return PaperRun(len(finished.records) - finished.n_found, finished.n_found, tuple(faults), plan.left_out)


def _reject_mixed(runs: Sequence[PlannedRun]) -> tuple[list[PlannedRun], list[str]]:
    """Split off unfinished rows whose folders hold runs with other settings; return the other runs and the faults."""
    faults: dict[str, str] = {}
    for one in {row_name(one): one for one in runs if not one.is_finished}.values():
        try:
            check_same_experiment(one.out, one.asked)
        except ErdaError as fault:
            faults[row_name(one)] = f"{row_name(one)}: {fault}"
    return [one for one in runs if row_name(one) not in faults], list(faults.values())


def row_name(planned: PlannedRun) -> str:
    """Name of a row in messages: the folder of its records."""
    return f"{planned.out.parent.name}/{planned.out.name}/{planned.asked.method}"
