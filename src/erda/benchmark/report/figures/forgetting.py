"""How much was forgotten, as bars."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from erda.benchmark.experiments import Experiment
from erda.benchmark.report.figures.base import INK, Figure, Panel, as_text, line_style, shorten, tidy
from erda.errors import RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_NAME = 24


def forgetting_figure(experiment: Experiment) -> Figure:
    """Forgetting of each line, one panel per protocol, with one standard deviation over streams."""
    if experiment.n_tasks < 2:
        raise RecordError("Forgetting needs at least two tasks; these streams have one.")
    said = "; ".join(
        f"{protocol}: "
        + ", ".join(f"{line.label} {one.mean:.1f}" for line in experiment.lines if (one := line.forgetting(protocol)))
        for protocol in experiment.protocols
    )
    height = 1.1 + 0.36 * len(experiment.lines)
    return Figure(
        name="forgetting",
        title=f"Forgetting: {experiment.title}",
        alt=f"Bars of forgetting in points for each method. {said}.",
        caption="Best earlier accuracy on a task minus its final one, mean over all tasks but the last; "
        "whiskers are one standard deviation over streams. Less is better.",
        panels=tuple(Panel(partial(_draw_bars, experiment, p), height=height) for p in experiment.protocols),
    )


def _draw_bars(experiment: Experiment, protocol: str, axes: Axes) -> None:
    rows = list(range(len(experiment.lines)))
    for number, line in zip(rows, experiment.lines, strict=True):
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
    axes.set_yticks(rows, [as_text(shorten(line.label, LONGEST_NAME)) for line in experiment.lines])
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.set_xlabel("forgetting (points)")
    axes.set_title(protocol)
    tidy(axes, grid="x")
