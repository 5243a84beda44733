"""How far the runs of the paper's tables are, and how long the rest will take."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tqdm import tqdm

from erda.benchmark.paper.planning import is_finished
from erda.benchmark.records import Record
from erda.benchmark.run.engines import Outcome
from erda.benchmark.run.loop import RunAt, run_directory

MINUTE, HOUR = 60, 3600
Kind = tuple[str, str, str]  # setting, variant and method: runs of a kind take about as long


@dataclass(slots=True)
class Estimate:
    """How long the rest will take, from the seconds of runs that are like it; nothing is said before one has ended."""

    left: dict[Kind, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(list))
    n_at_once: int | None = 1  # None: nobody knows, so nothing is said

    @classmethod
    def of(cls, runs: Iterable[RunAt], *, n_at_once: int | None) -> Estimate:
        """An estimate before the first of these runs."""
        estimate = cls(n_at_once=n_at_once)
        for run_at in runs:
            estimate.left[kind_of(run_at)] += 1
        return estimate

    def add(self, outcome: Outcome[RunAt, Record], *, found: bool = False) -> None:
        """One more run has ended; or was there already, and was not counted among the rest."""
        kind = kind_of(outcome.work)
        if not found:
            self.left[kind] -= 1
        if outcome.result is not None:
            self.seconds[kind].append(seconds_of(outcome.result))

    def rest(self) -> float | None:
        """Seconds of all that is left: the mean of its kind, else of its setting, else of everything."""
        if not self.seconds or not self.n_at_once:
            return None
        each = {kind: self._mean(kind) for kind, n in self.left.items() if n > 0}
        total = sum(self.left[kind] * seconds for kind, seconds in each.items())
        return max([total / self.n_at_once, *each.values()])

    def text(self) -> str:
        """The rest in words."""
        if not self.n_at_once:
            return ""
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


class Watch:
    """Tells on stderr how far the runs are: a bar on a terminal, elsewhere (nohup, CI) a line for each that ends."""

    def __init__(self, runs: Sequence[RunAt], *, engine: str, n_processes: int | None, show: bool = True) -> None:
        self.runs, self.engine, self.n_processes = runs, engine, n_processes
        self.found = {run_directory(folder, run) for run, folder in runs if is_finished((run, folder))}
        rest = [one for one in runs if not is_finished(one)]
        self.estimate = Estimate.of(rest, n_at_once=self._n_at_once())
        self.lines = show and not sys.stderr.isatty()
        self.bar = tqdm(total=len(runs), unit="run", disable=None if show else True, file=sys.stderr)
        self.bar.set_postfix_str(self.estimate.text())
        self.n_ended = 0
        if self.lines and self.found:
            print(f"there already: {len(self.found)} of {len(runs)} runs", file=sys.stderr)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.bar.close()

    def add(self, outcome: Outcome[RunAt, Record]) -> None:
        """One more run has ended."""
        run, folder = outcome.work
        found = run_directory(folder, run) in self.found
        self.n_ended += 1
        self.estimate.n_at_once = self._n_at_once()
        self.estimate.add(outcome, found=found)
        self.bar.update()
        self.bar.set_postfix_str(self.estimate.text())
        if self.lines and not (found and outcome.result is not None):
            print(self._line(outcome), file=sys.stderr, flush=True)

    def _line(self, outcome: Outcome[RunAt, Record]) -> str:
        run, folder = outcome.work
        became = f"{seconds_of(outcome.result):.0f} s" if outcome.result is not None else "failed"
        parts = [became, self.estimate.text() if self.n_ended < len(self.runs) else ""]
        name = f"{row_name(folder, run.method)}/{run.seed}"
        return f"{self.n_ended} of {len(self.runs)}: {name}: {', '.join(part for part in parts if part)}"

    def _n_at_once(self) -> int | None:
        """How many runs are at work at once; on Ray as many as the cluster has room for, once we are connected."""
        if self.engine == "local":
            return self.n_processes or 1
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return None
        resources = ray.cluster_resources()
        needed = ["CPU", *(["GPU"] if any(run.device.startswith("cuda") for run, _ in self.runs) else [])]
        room = min(int(resources.get(name, 0)) for name in needed)
        return min(room, self.n_processes or room) or None


def kind_of(run_at: RunAt) -> Kind:
    """What a run's time depends on."""
    run, folder = run_at
    return folder.parent.name, folder.name, run.method


def row_name(folder: Path, method: str) -> str:
    """How a row is called in messages: where its records lie."""
    return f"{folder.parent.name}/{folder.name}/{method}"


def seconds_of(record: Record) -> float:
    """Seconds of learning and predicting."""
    return sum(map(sum, record.seconds.values()))
