"""Run the paper's tables: each run once, whatever tables it stands in; what is finished on disk is not done again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.paper.embedding import keep_embeddings
from erda.benchmark.paper.plan import PaperTable
from erda.benchmark.paper.planning import is_finished, plan_runs
from erda.benchmark.paper.sections import note_tables
from erda.benchmark.paper.watching import Watch, row_name
from erda.benchmark.run.loop import RunAt, run_many
from erda.benchmark.run.progress import check_same_experiment
from erda.cluster import LOCAL
from erda.errors import ErdaError, SettingsError, join_faults
from erda.settings.load import Assignment


@dataclass(frozen=True, slots=True)
class PaperRun:
    """What became of the tables: how many runs were done, found or failed, and what was left out."""

    n_runs: int
    n_found: int
    faults: tuple[str, ...]
    left_out: tuple[str, ...]


def run_paper(
    tables: Sequence[PaperTable],
    *,
    out: Path,
    changes: Sequence[Assignment] = (),
    n_processes: int | None = None,
    engine: str = "local",
    address: str | None = None,
    show: bool = True,
) -> PaperRun:
    """Run every row of the tables and keep the vectors that t-SNE needs. Faults are told, the rest goes on.

    `changes` are what the user changes of every table: fewer seeds, another dataset, smaller streams.
    `show` says on stderr what is left out and how far it is: a bar on a terminal, else a line for each run.
    """
    elsewhere = engine == "ray" and address not in (None, LOCAL)
    planned = plan_runs(tables, out=out, changes=changes, look=not elsewhere)
    if not planned.runs:
        raise SettingsError(f"Nothing can be run.\n{join_faults(planned.left_out)}")
    for line in planned.left_out if show else ():
        print(f"left out: {line}", file=sys.stderr)
    runs, faults = _refuse_mixed(planned.runs)
    note_tables(out, tables)
    runs.sort(key=is_finished, reverse=True)  # those are only read, and say how long others will take
    with Watch(runs, engine=engine, n_processes=n_processes, show=show) as watch:
        finished = run_many(
            runs,
            cache=planned.cache,
            n_processes=n_processes,
            engine=engine,
            address=address,
            show_bars=False,
            on_outcome=watch.add,
        )
    faults += finished.faults
    for run, folder in planned.embedded:
        if (run, folder) in runs and is_finished((run, folder)):
            try:
                keep_embeddings(run, folder)
            except ErdaError as fault:
                faults.append(f"{run.title}, vectors: {fault}")
    return PaperRun(len(finished.records) - finished.n_found, finished.n_found, tuple(faults), planned.left_out)


def _refuse_mixed(runs: Sequence[RunAt]) -> tuple[list[RunAt], list[str]]:
    """The runs of rows whose folders hold nothing of other settings, and why the others are refused.

    A row that is finished adds nothing to its folder; its records are checked one by one as they are read.
    """
    rows = {(folder, run.method): run for run, folder in runs if not is_finished((run, folder))}
    faults: dict[tuple[Path, str], ErdaError] = {}
    for row, run in rows.items():
        try:
            check_same_experiment(row[0], run)
        except ErdaError as fault:
            faults[row] = fault
    allowed = [(run, folder) for run, folder in runs if (folder, run.method) not in faults]
    return allowed, [f"{row_name(*row)}: {fault}" for row, fault in faults.items()]
