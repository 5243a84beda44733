"""Accuracy after each task."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from erda.benchmark.report.experiments import PERCENT, Experiment
from erda.benchmark.report.figures.drawing import MUTED, Drawing, Panel, as_text, draw_band, line_style, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TICKS = 10


def draw_curve(experiment: Experiment) -> Drawing:
    """Accuracy after each task, one panel per protocol: mean, a band of one standard deviation, and chance."""
    return Drawing(
        name="curve",
        title=f"Accuracy after each task: {experiment.title}",
        alt=f"Lines of accuracy in per cent over the number of tasks learned. {_last_values(experiment)}",
        caption="Mean over streams with a band of one standard deviation; the dotted line is guessing.",
        panels=tuple(Panel(partial(_draw_protocol, experiment, protocol)) for protocol in experiment.protocols),
    )


def _last_values(experiment: Experiment) -> str:
    """What the curves end in, in words."""
    said = []
    for protocol in experiment.protocols:
        ends = [(line.label, line.accuracy(protocol, -1)) for line in experiment.lines]
        said.append(f"{protocol}: {', '.join(f'{label} {end.mean:.1f}' for label, end in ends if end)}")
    return f"After the last task, by {'; by '.join(said)}."


def _draw_protocol(experiment: Experiment, protocol: str, axes: Axes) -> None:
    tasks = list(range(1, experiment.n_tasks + 1))
    for number, line in enumerate(experiment.lines):
        found = [line.accuracy(protocol, k) for k in range(experiment.n_tasks)]
        means = [one.mean if one else float("nan") for one in found]
        style = line_style(number)
        axes.plot(
            tasks,
            means,
            label=as_text(f"{line.label} (n={len(line.records)})"),
            markersize=4.5,
            clip_on=False,
            **style,
        )
        draw_band(axes, tasks, means, [(one.deviation or 0.0) if one else 0.0 for one in found], style["color"])
    records = experiment.records
    chance = [sum((record.chance[protocol] or [])[k] for record in records) / len(records) for k in range(len(tasks))]
    axes.plot(tasks, [PERCENT * one for one in chance], color=MUTED, linestyle=":", label="chance")
    axes.set_title(f"{protocol}")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 100)
    set_task_axis(axes, experiment.n_tasks)
    tidy(axes)


def set_task_axis(axes: Axes, n_tasks: int) -> None:
    """The horizontal axis of figures over tasks; not every task of a long stream has a number."""
    axes.set_xlabel("tasks learned")
    step = -(-n_tasks // MOST_TICKS)
    axes.set_xticks(range(step, n_tasks + 1, step))
