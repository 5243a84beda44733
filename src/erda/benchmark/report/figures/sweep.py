"""Final accuracy over the values of one setting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from erda.benchmark.experiments import Experiment, Line
from erda.benchmark.report.figures.base import Figure, Panel, as_text, line_style, tidy
from erda.benchmark.statistics import Summary
from erda.errors import RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[object, Line]


def sweep_figure(experiment: Experiment, setting: str) -> Figure:
    """Accuracy after the last task over a setting's value, one panel per protocol and one line per method."""
    points = [(value, line) for line in experiment.lines if (value := setting_of(line, setting)) is not None]
    if len({value for value, _ in points}) < 2:
        raise RecordError(f"Setting '{setting}' does not have two values among these records, so nothing is swept.")
    values = _ordered({value for value, _ in points})
    ends = [
        f"{value}: {_end(line, protocol)} ({protocol})" for value, line in points for protocol in experiment.protocols
    ]
    return Figure(
        name="sweep",
        title=f"Accuracy after task {experiment.n_tasks} by {setting}: {experiment.title}",
        alt=f"Accuracy after the last task for each value of {setting}. {'; '.join(ends)}.",
        caption="Mean over streams; whiskers are one standard deviation.",
        panels=tuple(
            Panel(partial(_draw_values, points, values, setting, protocol)) for protocol in experiment.protocols
        ),
    )


def setting_of(line: Line, setting: str) -> object | None:
    """The value of a setting of the method, encoder or stream of a line; None where it has no such setting."""
    settings = line.first.settings
    for kind in ("method", "encoder", "stream"):
        if setting in settings.get(kind, {}):
            return settings[kind][setting]
    return None


def _ordered(values: set[object]) -> list[object]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values, key=(lambda value: float(str(value))) if numbers else str)


def _end(line: Line, protocol: str) -> str:
    found = line.accuracy(protocol, -1)
    return f"{found.mean:.1f}" if found else "not measured"


def _draw_values(points: list[Point], values: list[object], setting: str, protocol: str, axes: Axes) -> None:
    """Values stand at equal distances, as grids are seldom even."""
    methods = list(dict.fromkeys(line.method for _, line in points))
    reached: list[Summary] = []
    for number, method in enumerate(methods):
        own = {value: line.accuracy(protocol, -1) for value, line in points if line.method == method}
        found = [(x, one) for x, value in enumerate(values) if (one := own.get(value))]
        reached += [one for _, one in found]
        axes.errorbar(
            [x for x, _ in found],
            [one.mean for _, one in found],
            yerr=[one.deviation or 0.0 for _, one in found],
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
