"""Figures of measures: accuracy and seconds after each task, forgetting, accuracy over the values of a setting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.report.figures.figure import INK, MUTED, Figure, Panel, as_text, line_style, shorten, tidy
from erda.benchmark.statistics import Summary
from erda.errors import RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"learn": "learning a task", "predict": "answering all tests so far"}
WIDE = 15  # ratio of largest to smallest value above which the axis is logarithmic
MOST_TICKS = 10
LONGEST_NAME = 24


def _ends(experiment: Experiment, value: Callable[[Line, str], Summary | None]) -> list[str]:
    """Final value of every line in words, by protocol."""
    ends = {
        protocol: [f"{line.label} {one.mean:.1f}" for line in experiment.lines if (one := value(line, protocol))]
        for protocol in experiment.protocols
    }
    return [f"{protocol}: {', '.join(reached)}" for protocol, reached in ends.items()]


# -- over tasks --------------------------------------------------------------------------------------------------------


def accuracy_figure(experiment: Experiment) -> Figure:
    """Accuracy after each task, one panel per protocol: mean, band of one standard deviation, and chance."""
    ends = _ends(experiment, lambda line, protocol: line.accuracy(protocol, -1))
    return Figure(
        name="curve",
        title=f"Accuracy after each task: {experiment.title}",
        alt="Lines of accuracy in per cent over the number of tasks learned. "
        f"After the last task, by {'; by '.join(ends)}.",
        caption="Mean over streams with a band of one standard deviation; the dotted line is guessing.",
        panels=tuple(Panel(partial(_draw_accuracy, experiment, protocol)) for protocol in experiment.protocols),
    )


def _draw_accuracy(experiment: Experiment, protocol: str, axes: Axes) -> None:
    tasks, records = range(experiment.n_tasks), experiment.records
    for number, line in enumerate(experiment.lines):
        found = [line.accuracy(protocol, k) for k in tasks]
        draw_line(axes, number, found, label=f"{line.label} (n={len(line.records)})")
    chance = [PERCENT * sum(one.after("chance", protocol, k) or 0.0 for one in records) / len(records) for k in tasks]
    axes.plot([k + 1 for k in tasks], chance, color=MUTED, linestyle=":", label="chance")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 100)
    _set_task_axis(axes, experiment.n_tasks, title=protocol)


def cost_figure(experiment: Experiment) -> Figure:
    """Seconds of learning and of prediction per task, which show whether later tasks cost more."""
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
    if drawn and max(drawn) > WIDE * min(drawn):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.set_ylabel("seconds (logarithmic)")
    else:
        axes.set_ylim(bottom=0)
        axes.set_ylabel("seconds")
    _set_task_axis(axes, experiment.n_tasks, title=PARTS[part])


def draw_line(
    axes: Axes, number: int, found: list[Summary | None], *, label: str = "", may_be_log: bool = False
) -> list[float]:
    """Plot means over 1, 2, ... with a band of one deviation in the style of line `number`; return the means.

    If the axis may be logarithmic, the band stays above a tenth of its mean.
    """
    x = range(1, len(found) + 1)
    means = np.array([one.mean if one else np.nan for one in found])
    spread = np.array([(one.deviation or 0.0) if one else 0.0 for one in found])
    if may_be_log:
        spread = np.minimum(spread, 0.9 * means)
    style = line_style(number)
    axes.plot(x, means, label=as_text(label), markersize=4.5, clip_on=may_be_log, **style)
    if spread.any():
        axes.fill_between(x, means - spread, means + spread, color=style["color"], alpha=0.18, linewidth=0)
    return means.tolist()


def _set_task_axis(axes: Axes, n_tasks: int, *, title: str) -> None:
    """Set title and horizontal axis, with at most `MOST_TICKS` ticks."""
    axes.set_title(title)
    axes.set_xlabel("tasks learned")
    step = -(-n_tasks // MOST_TICKS)
    axes.set_xticks(range(step, n_tasks + 1, step))
    tidy(axes)


# -- after the last task -----------------------------------------------------------------------------------------------


def forgetting_figure(experiment: Experiment) -> Figure:
    """Forgetting of each line, one panel per protocol, with one standard deviation over streams."""
    if experiment.n_tasks < 2:
        raise RecordError("Forgetting needs at least two tasks; these streams have one.")
    height = 1.1 + 0.36 * len(experiment.lines)
    return Figure(
        name="forgetting",
        title=f"Forgetting: {experiment.title}",
        alt=f"Bars of forgetting in points for each method. {'; '.join(_ends(experiment, Line.forgetting))}.",
        caption="Best earlier accuracy on a task minus its final one, mean over all tasks but the last; "
        "whiskers are one standard deviation over streams. Less is better.",
        panels=tuple(Panel(partial(_draw_bars, experiment, p), height=height) for p in experiment.protocols),
    )


def _draw_bars(experiment: Experiment, protocol: str, axes: Axes) -> None:
    for number, line in enumerate(experiment.lines):
        found = line.forgetting(protocol)
        if found is None:
            continue
        axes.barh(
            number,
            found.mean,
            height=0.62,
            color=line_style(number)["color"],
            xerr=found.deviation,
            error_kw={"ecolor": INK, "elinewidth": 1.1, "capsize": 2.5},
        )
        end = max(found.mean, 0.0) + (found.deviation or 0.0)
        axes.annotate(
            f"{found.mean:.1f}", (end, number), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    names = [as_text(shorten(line.label, LONGEST_NAME)) for line in experiment.lines]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.set_xlabel("forgetting (points)")
    axes.set_title(protocol)
    tidy(axes, grid="x")


def sweep_figure(experiment: Experiment, setting: str) -> Figure:
    """Accuracy after the last task over a setting's value, one panel per protocol and one line per method."""
    points = [(value, line) for line in experiment.lines if (value := _setting_of(line, setting)) is not None]
    values = {value for value, _ in points}
    if len(values) < 2:
        raise RecordError(f"Setting '{setting}' does not have two values among these records, so nothing is swept.")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    ordered = sorted(values, key=(lambda value: float(str(value))) if numbers else str)
    ends = [
        f"{value}: {f'{end.mean:.1f}' if end else 'not measured'} ({protocol})"
        for value, line in points
        for protocol in experiment.protocols
        for end in [line.accuracy(protocol, -1)]
    ]
    return Figure(
        name="sweep",
        title=f"Accuracy after task {experiment.n_tasks} by {setting}: {experiment.title}",
        alt=f"Accuracy after the last task for each value of {setting}. {'; '.join(ends)}.",
        caption="Mean over streams; whiskers are one standard deviation.",
        panels=tuple(Panel(partial(_draw_values, points, ordered, setting, p)) for p in experiment.protocols),
    )


def _setting_of(line: Line, setting: str) -> object | None:
    """Value of a setting of a line's method, encoder or stream; None if it has no such setting."""
    parts = (line.first.settings.get(kind, {}) for kind in ("method", "encoder", "stream"))
    return next((part[setting] for part in parts if setting in part), None)


def _draw_values(
    points: list[tuple[object, Line]], values: list[object], setting: str, protocol: str, axes: Axes
) -> None:
    """Plot values at equal distances, because grids are seldom uniform."""
    reached: list[Summary] = []
    for number, method in enumerate(dict.fromkeys(line.method for _, line in points)):
        own = {value: line.accuracy(protocol, -1) for value, line in points if line.method == method}
        found = {x: one for x, value in enumerate(values) if (one := own.get(value))}
        reached += found.values()
        axes.errorbar(
            list(found),
            [one.mean for one in found.values()],
            yerr=[one.deviation or 0.0 for one in found.values()],
            label=as_text(method),
            capsize=3,
            markersize=5,
            **line_style(number),
        )
    low = min(one.mean - (one.deviation or 0.0) for one in reached)
    high = max(one.mean + (one.deviation or 0.0) for one in reached)
    room = max(1.0, 0.25 * (high - low))
    axes.set_ylim(max(0.0, low - room), min(100.0, high + room))
    axes.set_xticks(range(len(values)), [as_text(str(value)) for value in values])
    axes.set_xlabel(as_text(setting))
    axes.set_ylabel("accuracy (%)")
    axes.set_title(protocol)
    tidy(axes)
