"""Confusion of relations and of tasks after the last task, from `predictions.npz`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.records import PREDICTIONS, Record, TestPredictions, read_predictions
from erda.benchmark.report.figures.figure import COLOURS, GRID, INK, MUTED, Figure, Panel, as_text, shorten
from erda.benchmark.report.table_formats import Cells, Table
from erda.errors import RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_PAIRS = 10
MOST_NAMES = 24  # maximum number of relation names on an axis
MOST_NUMBERS = 12  # maximum number of tasks with numbers in their cells


@dataclass(frozen=True, slots=True, eq=False)
class Confusion:
    """Confusion of one line after the last task.

    `counts` [n_relations, n_relations]: examples of the first stream by gold and predicted relation, in the order of
    learning. `by_task` [n_tasks, n_tasks]: share of a task's examples predicted as a relation of each task, mean over
    all streams; rows sum to 1. `mistakes`: the most frequent mistakes over all streams, as rows of `confusion_table`.
    """

    line: Line
    names: tuple[str, ...]
    ends: tuple[int, ...]  # index after the last relation of each task
    counts: np.ndarray
    by_task: np.ndarray
    mistakes: tuple[Cells, ...]


def count_confusion(line: Line) -> Confusion:
    """Count confusions in the predictions of a line; raise `RecordError` if predictions are missing."""
    mistakes: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    names: dict[str, str] = {}
    shares, all_counts = [], []
    for one in line.found:
        record = one.record
        if one.folder is None or not (one.folder / PREDICTIONS).exists():
            raise RecordError(f"No confusion for '{line.label}': {one.folder or record.title} has no {PREDICTIONS}.")
        learned = [name for task in record.order for name in task]
        counts = _count(record, learned, read_predictions(one.folder))
        names |= record.relation_names
        asked.update(dict(zip(learned, counts.sum(axis=1).tolist(), strict=True)))
        for gold, best in np.argwhere(counts).tolist():
            if gold != best:
                mistakes[learned[gold], learned[best]] += int(counts[gold, best])
        task_of = np.repeat(np.arange(record.n_tasks), [len(task) for task in record.order])
        blocks = np.zeros((record.n_tasks, record.n_tasks))
        np.add.at(blocks, (task_of[:, None], task_of[None, :]), counts)
        shares.append(blocks / np.maximum(blocks.sum(axis=1, keepdims=True), 1))
        all_counts.append(counts)
    worst = sorted(mistakes.items(), key=lambda pair: (-pair[1] / asked[pair[0][0]], pair[0]))[:N_PAIRS]
    return Confusion(
        line=line,
        names=tuple(names.get(name, name) for task in line.first.order for name in task),
        ends=tuple(np.cumsum([len(task) for task in line.first.order]).tolist()),
        counts=all_counts[0],
        by_task=np.mean(shares, axis=0),
        mistakes=tuple(
            (names.get(gold, gold), names.get(best, best), f"{PERCENT * n / asked[gold]:.1f}", n, asked[gold])
            for (gold, best), n in worst
        ),
    )


def _count(record: Record, learned: Sequence[str], found: TestPredictions) -> np.ndarray:
    """Count gold x predicted relations after the last task, in the order of learning."""
    position = {name: i for i, name in enumerate(learned)}
    try:
        place = np.array([position[name] for name in found.relations])
    except KeyError as error:
        raise RecordError(
            f"{record.title}: its {PREDICTIONS} does not fit its record. Delete both and run again."
        ) from error
    answered = found.best[-1] >= 0
    counts = np.zeros((len(position), len(position)), dtype=np.int64)
    np.add.at(counts, (place[found.gold[answered]], place[found.best[-1][answered]]), 1)
    return counts


def confusion_table(confusion: Confusion, experiment: Experiment) -> Table:
    """Table of the most frequent mistakes."""
    line = confusion.line
    return Table(
        name="confusion",
        title=f"Most frequent mistakes of {line.label} after task {experiment.n_tasks}: {experiment.title}",
        columns=("relation", "taken for", "share (%)", "times", "questions"),
        rows=confusion.mistakes,
        notes=(f"By the best score among all relations, over {len(line.found)} streams together.",),
        text_columns=2,
    )


def confusion_figure(confusion: Confusion, experiment: Experiment) -> Figure:
    """Maps of tasks over all streams and of relations in the first stream."""
    by_task, line = confusion.by_task, confusion.line
    inside = float(np.trace(by_task)) / len(by_task)
    latest = float(by_task[:-1, -1].mean()) if len(by_task) > 1 else 0.0
    return Figure(
        name="confusion",
        title=f"Confusion of {line.label} after task {experiment.n_tasks}: {experiment.title}",
        alt=f"Two maps of which tasks and which relations {line.label} takes for which. On average "
        f"{PERCENT * inside:.0f} % of a task's questions are answered with a relation of the same task, and "
        f"{PERCENT * latest:.0f} % of the earlier tasks' questions with one of the last task.",
        caption=f"{line.label}, by the best score among all relations. Tasks: mean of {len(line.found)} "
        f"streams. Relations: stream {line.first.seed}, in the order of learning; blue is right, orange a mistake, and "
        "colours grow with the square root of the share so that rare mistakes can be seen.",
        panels=(
            Panel(partial(_draw_tasks, confusion), height=4.2),
            Panel(partial(_draw_relations, confusion), height=4.2),
        ),
    )


def _draw_tasks(confusion: Confusion, axes: Axes) -> None:
    n_tasks = len(confusion.by_task)
    _show(axes, confusion.by_task)
    if n_tasks <= MOST_NUMBERS:
        for row, column in np.ndindex(n_tasks, n_tasks):
            share = confusion.by_task[row, column]
            axes.text(column, row, f"{PERCENT * share:.0f}", ha="center", va="center", fontsize=8.5, color=INK)
    ticks = range(0, n_tasks, -(-n_tasks // MOST_NUMBERS))
    axes.set_xticks(ticks, [str(k + 1) for k in ticks])
    axes.set_yticks(ticks, [str(k + 1) for k in ticks])
    axes.set_xlabel("task of the answer")
    axes.set_ylabel("task of the question")
    axes.set_title("tasks (% of a task's questions)")


def _draw_relations(confusion: Confusion, axes: Axes) -> None:
    counts = confusion.counts
    _show(axes, counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    starts = (0, *confusion.ends[:-1])
    for edge in confusion.ends[:-1]:
        axes.axhline(edge - 0.5, color=GRID, linewidth=0.7)
        axes.axvline(edge - 0.5, color=GRID, linewidth=0.7)
    if len(counts) <= MOST_NAMES:
        names = [as_text(shorten(name, 18)) for name in confusion.names]
        size = 8.5 if len(counts) <= 12 else 6.5
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
        axes.set_yticks(range(len(names)), names, fontsize=size)
    else:
        step = -(-len(starts) // MOST_NUMBERS)
        middles = [(start + end - 1) / 2 for start, end in zip(starts, confusion.ends, strict=True)][::step]
        numbers = [str(k + 1) for k in range(0, len(starts), step)]
        axes.set_xticks(middles, numbers)
        axes.set_yticks(middles, numbers)
        axes.set_xlabel("relation of the answer, by task")
        axes.set_ylabel("relation of the question, by task")
    axes.set_title(f"{len(counts)} relations (stream {confusion.line.first.seed})")


def _show(axes: Axes, shares: np.ndarray) -> None:
    """Draw cells with opacity by the square root of the share; the diagonal and mistakes differ in colour."""
    from matplotlib.colors import to_rgb

    right, wrong = to_rgb(COLOURS[0]), to_rgb(COLOURS[1])
    image = np.zeros((*shares.shape, 4))
    image[..., :3] = np.where(np.eye(len(shares), dtype=bool)[..., None], right, wrong)
    image[..., 3] = 0.85 * np.sqrt(shares)
    axes.imshow(image, interpolation="nearest", aspect="equal")
    axes.spines[:].set_color(MUTED)
    axes.tick_params(length=0)
