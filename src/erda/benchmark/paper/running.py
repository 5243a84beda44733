"""Run the paper's tables: each run once, whatever tables it stands in; what is finished on disk is not done again."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from erda.benchmark.engines import Outcome
from erda.benchmark.paper.embedding import keep_embeddings
from erda.benchmark.paper.plan import Changes, PaperTable, Planned, plan_runs
from erda.benchmark.paper.sections import note_tables
from erda.benchmark.records import Record
from erda.benchmark.runner import RunAt, run_many
from erda.errors import ErdaError

MINUTE, HOUR = 60, 3600


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
    changes: Changes,
    n_processes: int | None = None,
    engine: str = "local",
    address: str | None = None,
    show: bool = True,
) -> PaperRun:
    """Run every row of the tables and keep the vectors that t-SNE needs. Faults are told, the rest goes on."""
    planned = plan_runs(tables, out=out, changes=changes)
    note_tables(out, tables)
    if not planned.runs:
        return PaperRun(0, 0, (), planned.left_out)
    estimate = Estimate.of(planned, n_at_once=n_processes or 1)
    with tqdm(total=len(planned.runs), unit="run", disable=None if show else True, file=sys.stderr) as bar:
        bar.set_postfix_str(estimate.text())

        def tell(outcome: Outcome[RunAt, Record]) -> None:
            estimate.add(outcome)
            bar.update()
            bar.set_postfix_str(estimate.text())

        finished = run_many(
            planned.runs,
            cache=planned.cache,
            n_processes=n_processes,
            engine=engine,
            address=address,
            show_bars=False,
            on_outcome=tell,
        )
    faults = list(finished.faults)
    for run, folder in planned.embedded:
        try:
            keep_embeddings(run, folder)
        except ErdaError as fault:
            faults.append(f"{run.title}, vectors: {fault}")
    return PaperRun(len(finished.records) - finished.n_found, finished.n_found, tuple(faults), planned.left_out)


# -- how long it will take ---------------------------------------------------------------------------------------------

Kind = tuple[str, str, str]  # setting, variant and method: runs of a kind take about as long


@dataclass(slots=True)
class Estimate:
    """How long the rest will take, from the seconds of runs that are like it; nothing is said before one has ended."""

    left: dict[Kind, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(list))
    n_at_once: int = 1

    @classmethod
    def of(cls, planned: Planned, *, n_at_once: int) -> Estimate:
        """An estimate before the first run."""
        estimate = cls(n_at_once=n_at_once)
        for run_at in planned.runs:
            estimate.left[kind_of(run_at)] += 1
        return estimate

    def add(self, outcome: Outcome[RunAt, Record]) -> None:
        """One more run has ended."""
        kind = kind_of(outcome.work)
        self.left[kind] -= 1
        if outcome.result is not None:
            self.seconds[kind].append(sum(map(sum, outcome.result.seconds.values())))

    def rest(self) -> float | None:
        """Seconds of all that is left: the mean of its kind, else of its setting, else of everything."""
        if not self.seconds:
            return None
        total = sum(n * self._mean(kind) for kind, n in self.left.items())
        return total / self.n_at_once

    def text(self) -> str:
        """The rest in words."""
        seconds = self.rest()
        if seconds is None:
            return "time left: known after the first run"
        if seconds < MINUTE:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / MINUTE:.0f} min left" if seconds < HOUR else f"about {seconds / HOUR:.1f} h left"

    def _mean(self, kind: Kind) -> float:
        for near in (
            self.seconds.get(kind, []),
            [one for other, found in self.seconds.items() if other[0] == kind[0] for one in found],
            [one for found in self.seconds.values() for one in found],
        ):
            if near:
                return sum(near) / len(near)
        return 0.0


def kind_of(run_at: RunAt) -> Kind:
    """What a run's time depends on."""
    run, folder = run_at
    return folder.parent.name, folder.name, run.method
