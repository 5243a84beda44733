"""Figures of accuracy as values, and their rendering as PNG and SVG.

A file shows all panels side by side with a title and one legend. The page shows each panel separately, so that panels
stack on a narrow screen.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.statistics import Summary
from erda.errors import RecordError
from erda.files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib import figure as mpl_figure
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

MUTED = "#6a717a"
FORMATS = ("png", "svg")
MOST_TICKS = 10
STYLE = Path(__file__).with_name("figures.mplstyle")


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes and its drawing function; sizes in inches."""

    draw: Callable[[Axes], None]
    width: float = 4.4
    height: float = 3.5


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure before rendering. `alt` describes it in words, `caption` explains how to read it."""

    name: str  # of its files
    title: str
    alt: str
    caption: str
    panels: tuple[Panel, ...]


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as PNG and SVG, all panels side by side; equal figures give equal bytes."""
    paths = []
    with _style():
        painted = paint(figure.panels, title=figure.title)
        for suffix in FORMATS:
            paths.append(folder / f"{figure.name}.{suffix}")
            write_bytes(paths[-1], _bytes(painted, suffix))
    return paths


def page_panels(figure: Figure) -> list[str]:
    """Render each panel as a data URL for the page."""
    with _style():
        drawn = [_bytes(paint([panel]), "png") for panel in figure.panels]
    return [f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in drawn]


def paint(panels: Sequence[Panel], *, title: str = "") -> mpl_figure.Figure:
    """Draw panels side by side in a Matplotlib figure, with one shared legend below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    widths = [panel.width for panel in panels]
    figure = Canvas(layout=ConstrainedLayoutEngine(w_pad=0.1))
    FigureCanvasAgg(figure)
    found = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    named: dict[str, Artist] = {}
    for axes, panel in zip(found, panels, strict=True):
        panel.draw(axes)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    height = max(panel.height for panel in panels) + (0.3 if title else 0.0)
    if named:
        room = int(sum(widths) * 14)  # characters per row, approximately
        longest = room - 8
        names = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in named]
        columns = max(1, min(4, len(names), room // (max(map(len, names)) + 6)))
        figure.legend(list(named.values()), names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        height += 0.2 * -(-len(names) // columns)
    if title:
        lines = wrap(title, max(20, int(sum(widths) * 11)))  # characters per row, approximately
        figure.suptitle(matplotlib_text("\n".join(lines)), fontsize=11)
        height += 0.2 * (len(lines) - 1)
    figure.set_size_inches(sum(widths), height)
    return figure


def matplotlib_text(text: str) -> str:
    """Escape text for Matplotlib: dollars start no formula, a leading underscore hides no label."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


@cache
def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dash of a line; the first 21 differ."""
    import matplotlib as mpl

    styles = list(mpl.rc_params_from_file(STYLE, use_default_template=False)["axes.prop_cycle"])
    return dict(styles[number % len(styles)])


# -- from Matplotlib to bytes ------------------------------------------------------------------------------------------


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(fname=STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names in other scripts
        yield


def _bytes(figure: mpl_figure.Figure, suffix: str) -> bytes:
    file = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type") if suffix == "svg" else ("Software",))
    figure.savefig(file, format=suffix, dpi=160, metadata=metadata)
    return file.getvalue()


# -- accuracy ----------------------------------------------------------------------------------------------------------


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
    learned = [k + 1 for k in tasks]
    for number, line in enumerate(experiment.lines):
        found = [line.accuracy(protocol, k) for k in tasks]
        means = np.array([one.mean if one else np.nan for one in found])
        spread = np.array([(one.deviation or 0.0) if one else 0.0 for one in found])
        style, label = line_style(number), matplotlib_text(f"{line.label} (n={len(line.records)})")
        axes.plot(learned, means, label=label, markersize=4.5, clip_on=False, **style)
        if spread.any():
            axes.fill_between(learned, means - spread, means + spread, color=style["color"], alpha=0.18, linewidth=0)
    chance = [PERCENT * sum(one.after("chance", protocol, k) or 0.0 for one in records) / len(records) for k in tasks]
    axes.plot(learned, chance, color=MUTED, linestyle=":", marker="", label="chance")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 100)
    axes.set_title(protocol)
    axes.set_xlabel("tasks learned")
    step = -(-experiment.n_tasks // MOST_TICKS)
    axes.set_xticks(range(step, experiment.n_tasks + 1, step))


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
            label=matplotlib_text(method),
            capsize=3,
            markersize=5,
            **line_style(number),
        )
    low = min(one.mean - (one.deviation or 0.0) for one in reached)
    high = max(one.mean + (one.deviation or 0.0) for one in reached)
    room = max(1.0, 0.25 * (high - low))
    axes.set_ylim(max(0.0, low - room), min(100.0, high + room))
    axes.set_xticks(range(len(values)), [matplotlib_text(str(value)) for value in values])
    axes.set_xlabel(matplotlib_text(setting))
    axes.set_ylabel("accuracy (%)")
    axes.set_title(protocol)
