"""How far the runs of the paper's tables are, and how long the rest will take."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence

from tqdm import tqdm

from erda.benchmark.records import Record
from erda.benchmark.run.engines import Outcome
from erda.benchmark.run.many import PlannedRun

MINUTE, HOUR = 60, 3600


class Watch:
    """Tells on stderr how far the runs are: a bar on a terminal, elsewhere (nohup, CI) a line for each that ends.

    The time left is that of runs of the same row, else of the same setting, else of all that have ended.
    """

    def __init__(self, runs: Sequence[PlannedRun], *, engine: str, n_processes: int | None, show: bool = True) -> None:
        self.runs, self.engine, self.n_processes = runs, engine, n_processes
        self.found = {one.folder for one in runs if one.is_finished}
        self.left = Counter(row_name(one) for one in runs if one.folder not in self.found)
        self.seconds: dict[str, list[float]] = defaultdict(list)  # of runs that ended, by row
        self.n_ended = 0
        self.prints = show and not sys.stderr.isatty()
        self.bar = tqdm(total=len(runs), unit="run", disable=None if show else True, file=sys.stderr)
        self.bar.set_postfix_str(self.time_left())
        if self.prints and self.found:
            print(f"there already: {len(self.found)} of {len(runs)} runs", file=sys.stderr)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def add(self, outcome: Outcome[PlannedRun, Record]) -> None:
        """One more run has ended, or was there already."""
        row = row_name(outcome.work)
        found = outcome.work.folder in self.found
        self.n_ended += 1
        if not found:
            self.left[row] -= 1
        if outcome.result is not None:
            self.seconds[row].append(outcome.result.total_seconds)
        left = self.time_left()
        self.bar.update()
        self.bar.set_postfix_str(left)
        if self.prints and not (found and outcome.result is not None):
            became = f"{outcome.result.total_seconds:.0f} s" if outcome.result is not None else "failed"
            said = ", ".join([became, *([left] if left and self.n_ended < len(self.runs) else [])])
            name = f"{row}/{outcome.work.asked.seed}"
            print(f"{self.n_ended} of {len(self.runs)}: {name}: {said}", file=sys.stderr, flush=True)

    def seconds_left(self, n_at_once: int) -> float | None:
        """Seconds of all that is left; None before a run has ended."""
        if not self.seconds:
            return None
        each = {row: self._mean(row) for row, n in self.left.items() if n > 0}
        return max([sum(self.left[row] * seconds for row, seconds in each.items()) / n_at_once, *each.values()])

    def time_left(self) -> str:
        """The rest in words; "" where nobody knows how many runs are at work at once."""
        n_at_once = self._n_at_once()
        if not n_at_once:
            return ""
        seconds = self.seconds_left(n_at_once)
        if seconds is None:
            return "time left: known after the first run"
        if seconds < MINUTE:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / MINUTE:.0f} min left" if seconds < HOUR else f"about {seconds / HOUR:.1f} h left"

    def _mean(self, row: str) -> float:
        setting = row.partition("/")[0] + "/"
        near = (
            self.seconds.get(row, [])
            or [one for other, found in self.seconds.items() if other.startswith(setting) for one in found]
            or [one for found in self.seconds.values() for one in found]
        )
        return sum(near) / len(near)

    def _n_at_once(self) -> int | None:
        """How many runs are at work at once; on Ray as many as the cluster has room for, once we are connected."""
        if self.engine == "local":
            return self.n_processes or 1
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return None
        resources = ray.cluster_resources()
        needed = ["CPU", *(["GPU"] if any(one.asked.device.startswith("cuda") for one in self.runs) else [])]
        room = min(int(resources.get(name, 0)) for name in needed)
        return min(room, self.n_processes or room) or None


def row_name(planned: PlannedRun) -> str:
    """How a row is called in messages: where its records lie. Runs of a row take about as long."""
    return f"{planned.out.parent.name}/{planned.out.name}/{planned.asked.method}"
