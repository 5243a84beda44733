"""Run the paper's tables: runs shared by several tables run once, and finished runs are not repeated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.paper.paper_plan import NO_CHANGES, plan_runs
from erda.benchmark.paper.paper_tables import PaperTable
from erda.benchmark.run.planned_runs import run_planned
from erda.errors import SettingsError, join_faults, one_line
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
    """Run every row of the tables; report faults and continue.

    `changes` apply to every table: fewer seeds, another dataset, smaller streams. `show` prints skipped tables and a
    progress bar on stderr.
    """
    plan = plan_runs(tables, out=out, changes=changes)
    if not plan.runs:
        raise SettingsError(f"No table can be run.\n{join_faults(plan.left_out)}")
    for line in plan.left_out if show else ():
        print(one_line(f"skipped: {line}"), file=sys.stderr)
    finished = run_planned(plan.runs, cache=plan.cache, n_processes=n_processes, show_bars=show)
    return PaperRun(len(finished.records) - finished.n_found, finished.n_found, finished.faults, plan.left_out)
