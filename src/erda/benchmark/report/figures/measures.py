"""Figures of accuracy: after each task, and over the values of a setting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.report.figures.figure import MUTED, Figure, Panel, as_text, line_style, tidy
from erda.benchmark.statistics import Summary
from erda.errors import RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TICKS = 10


def accuracy_figure(experiment: Experiment) -> Figure:
    """Accuracy after each task, one panel per protocol: mean, band of one standard deviation, and chance."""
    reached = {
        protocol: [f"{line.label} {one.mean:.1f}" for line in experiment.lines if (one := line.accuracy(protocol, -1))]
        for protocol in experiment.protocols
    }
    ends = [f"{protocol}: {', '.join(named)}" for protocol, named in reached.items()]
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
    axes.set_title(protocol)
    axes.set_xlabel("tasks learned")
    step = -(-experiment.n_tasks // MOST_TICKS)
    axes.set_xticks(range(step, experiment.n_tasks + 1, step))
    tidy(axes)


def draw_line(axes: Axes, number: int, found: list[Summary | None], *, label: str = "") -> list[float]:
    """Plot means over 1, 2, ... with a band of one deviation in the style of line `number`; return the means."""
    x = range(1, len(found) + 1)
    means = np.array([one.mean if one else np.nan for one in found])
    spread = np.array([(one.deviation or 0.0) if one else 0.0 for one in found])
    style = line_style(number)
    axes.plot(x, means, label=as_text(label), markersize=4.5, clip_on=False, **style)
    if spread.any():
        axes.fill_between(x, means - spread, means + spread, color=style["color"], alpha=0.18, linewidth=0)
    return means.tolist()


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
