"""Figures over tasks: accuracy after each, and its seconds (does a task cost more the more tasks came before it?)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.report.figures.base import MUTED, Figure, Panel, draw_line, set_task_axis, tidy
from erda.benchmark.statistics import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"learn": "learning a task", "predict": "answering all tests so far"}
WIDE = 15  # a logarithmic axis where the largest value is so many times the smallest


def accuracy_figure(experiment: Experiment) -> Figure:
    """Accuracy after each task, one panel per protocol: mean, a band of one standard deviation, and chance."""
    said = []
    for protocol in experiment.protocols:
        ends = [(line.label, line.accuracy(protocol, -1)) for line in experiment.lines]
        said.append(f"{protocol}: {', '.join(f'{label} {end.mean:.1f}' for label, end in ends if end)}")
    return Figure(
        name="curve",
        title=f"Accuracy after each task: {experiment.title}",
        alt="Lines of accuracy in per cent over the number of tasks learned. "
        f"After the last task, by {'; by '.join(said)}.",
        caption="Mean over streams with a band of one standard deviation; the dotted line is guessing.",
        panels=tuple(Panel(partial(_draw_accuracy, experiment, protocol)) for protocol in experiment.protocols),
    )


def _draw_accuracy(experiment: Experiment, protocol: str, axes: Axes) -> None:
    tasks = range(experiment.n_tasks)
    for number, line in enumerate(experiment.lines):
        label = f"{line.label} (n={len(line.records)})"
        draw_line(axes, number, [line.accuracy(protocol, k) for k in tasks], label=label)
    records = experiment.records
    chance = [PERCENT * sum(one.after("chance", protocol, k) or 0.0 for one in records) / len(records) for k in tasks]
    axes.plot([k + 1 for k in tasks], chance, color=MUTED, linestyle=":", label="chance")
    axes.set_title(protocol)
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 100)
    set_task_axis(axes, experiment.n_tasks)
    tidy(axes)


def cost_figure(experiment: Experiment) -> Figure:
    """Seconds of learning and of answering, task by task, mean and a band of one standard deviation."""
    said = []
    for line in experiment.lines:
        first, last = _seconds(line, "learn", min(1, experiment.n_tasks - 1)), _seconds(line, "learn", -1)
        if first and last:
            said.append(f"{line.label} learns task 2 in {first.mean:.2f} s and the last in {last.mean:.2f} s")
    return Figure(
        name="cost",
        title=f"Seconds of each task: {experiment.title}",
        alt=f"Lines of seconds over tasks, for learning and for answering. {'; '.join(said)}.",
        caption="Mean over streams with a band of one standard deviation. The first task has more examples than the "
        "others in most settings; answering grows with the tests, which are those of all tasks so far.",
        panels=tuple(Panel(partial(_draw_cost, experiment, part)) for part in PARTS),
    )


def _seconds(line: Line, part: str, k: int) -> Summary | None:
    return line.summary(lambda record: record.seconds[part][k])


def _draw_cost(experiment: Experiment, part: str, axes: Axes) -> None:
    from matplotlib.ticker import LogLocator

    drawn: list[float] = []
    for number, line in enumerate(experiment.lines):
        found = [_seconds(line, part, k) for k in range(experiment.n_tasks)]
        drawn += [mean for mean in draw_line(axes, number, found, label=line.label, may_be_log=True) if mean > 0]
    axes.set_title(PARTS[part])
    if drawn and max(drawn) > WIDE * min(drawn):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.set_ylabel("seconds (logarithmic)")
    else:
        axes.set_ylim(bottom=0)
        axes.set_ylabel("seconds")
    set_task_axis(axes, experiment.n_tasks)
    tidy(axes)
