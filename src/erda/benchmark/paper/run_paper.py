"""Run the paper's tables: runs shared by several tables run once, and finished runs are not repeated.

For the t-SNE figure, `embeddings.npz` beside a record holds vectors of test examples before and after a task.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erda.benchmark.paper.paper_plan import NO_CHANGES, plan_runs
from erda.benchmark.paper.paper_tables import PaperTable
from erda.benchmark.report.figures import EMBEDDINGS
from erda.benchmark.run.planned_runs import PlannedRun, run_planned
from erda.data.streams import TaskStream
from erda.errors import ErdaError, SettingsError, StreamError, join_faults, one_line
from erda.files import write_arrays
from erda.methods.base import Method
from erda.settings.build import build_run_method, open_run_stream
from erda.settings.load import Layer

N_BASE, N_NEW = 4, 2  # relations of the first task and of the second in the t-SNE figure, as in the paper


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
    finished = run_planned(plan.runs, cache=plan.cache, n_processes=n_processes, show_bars=show)
    faults = list(finished.faults)
    for one in plan.embedded:
        if one.is_finished:
            try:
                keep_vectors(one)
            except ErdaError as fault:
                faults.append(f"{one.asked.title}, vectors: {fault}")
    return PaperRun(len(finished.records) - finished.n_found, finished.n_found, tuple(faults), plan.left_out)


# -- vectors for t-SNE -------------------------------------------------------------------------------------------------


def keep_vectors(planned: PlannedRun) -> Path:
    """Repeat two tasks and write vectors of test examples of relations drawn by the seed, unless they exist."""
    path, run = planned.folder / EMBEDDINGS, planned.asked
    if path.exists():
        return path
    stream = open_run_stream(run)
    tasks = [task for task in stream if task.index < 2]
    if len(tasks) < 2:
        raise StreamError("t-SNE before and after a task needs a stream of two tasks or more.")
    rng = np.random.default_rng(run.seed)
    drawn = [
        sorted(rng.choice([relation.id for relation in task.relations], min(n, len(task.relations)), replace=False))
        for task, n in zip(tasks, (N_BASE, N_NEW), strict=True)
    ]
    arrays = {name: np.array(own, dtype=np.str_) for name, own in zip(("base", "new"), drawn, strict=True)}
    method = build_run_method(run)
    for task, time in zip(tasks, ("before", "after"), strict=True):
        method.learn(task)
        arrays |= _vectors(method, stream, drawn[: task.index + 1], time)
    write_arrays(path, arrays)
    return path


def _vectors(method: Method, stream: TaskStream, drawn: Sequence[Sequence[str]], time: str) -> dict[str, np.ndarray]:
    """Vectors [n, dim] and relations [n] of the test examples of the sampled relations."""
    examples, relations = [], []
    for task, names in enumerate(drawn):
        test = stream.test(task)
        for example, gold in zip(test.examples, test.gold, strict=True):
            if gold in names:
                examples.append(example)
                relations.append(gold)
    vectors = method.encoder.embed(examples)
    return {f"vectors_{time}": vectors, f"relations_{time}": np.array(relations, dtype=np.str_)}
