"""Seconds of each task: does a task cost more the more tasks came before it?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from erda.benchmark.report.experiments import Experiment, Line
from erda.benchmark.report.figures.curve import set_task_axis
from erda.benchmark.report.figures.drawing import Drawing, Panel, as_text, draw_band, line_style, tidy
from erda.benchmark.report.tables import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"learn": "learning a task", "predict": "answering all tests so far"}
WIDE = 15  # a logarithmic axis where the largest value is so many times the smallest


def draw_cost(experiment: Experiment) -> Drawing:
    """Seconds of learning and of answering, task by task, mean and a band of one standard deviation."""
    said = []
    for line in experiment.lines:
        first, last = _seconds(line, "learn", min(1, experiment.n_tasks - 1)), _seconds(line, "learn", -1)
        if first and last:
            said.append(f"{line.label} learns task 2 in {first.mean:.2f} s and the last in {last.mean:.2f} s")
    return Drawing(
        name="cost",
        title=f"Seconds of each task: {experiment.title}",
        alt=f"Lines of seconds over tasks, for learning and for answering. {'; '.join(said)}.",
        caption="Mean over streams with a band of one standard deviation. The first task has more examples than the "
        "others in most settings; answering grows with the tests, which are those of all tasks so far.",
        panels=tuple(Panel(partial(_draw_part, experiment, part)) for part in PARTS),
    )


def _seconds(line: Line, part: str, k: int) -> Summary | None:
    return line.summary(lambda record: record.seconds[part][k])


def _draw_part(experiment: Experiment, part: str, axes: Axes) -> None:
    from matplotlib.ticker import LogLocator

    tasks = list(range(1, experiment.n_tasks + 1))
    drawn: list[float] = []
    for number, line in enumerate(experiment.lines):
        found = [_seconds(line, part, k) for k in range(experiment.n_tasks)]
        means = [one.mean if one else float("nan") for one in found]
        style = line_style(number)
        axes.plot(tasks, means, label=as_text(line.label), markersize=4.5, **style)
        spread = [(one.deviation or 0.0) if one else 0.0 for one in found]
        # a band that would reach zero stops above it, so that a logarithmic axis can show it
        kept = [min(one, 0.9 * mean) for mean, one in zip(means, spread, strict=True)]
        draw_band(axes, tasks, means, kept, style["color"])
        drawn += [mean for mean in means if mean > 0]
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
