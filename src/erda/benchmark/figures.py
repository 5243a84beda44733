"""Figures from experiments; matplotlib is imported where it is used."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from erda.benchmark.records import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from erda.benchmark.experiments import Experiment

# Okabe and Ito's colours, which stay apart for the colour-blind; each line also has a marker and a dash of its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.")
FORMATS = ("png", "svg")


def draw_curve(experiment: Experiment, stem: Path) -> list[Path]:
    """Accuracy after each task, one panel per protocol, mean and a band of one standard deviation; PNG and SVG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    protocols = experiment.protocols
    figure = Figure(figsize=(2.2 + 3.7 * len(protocols), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(protocols), sharey=True, squeeze=False)[0]
    for panel, protocol in zip(panels, protocols, strict=True):
        _draw_protocol(panel, experiment, protocol)
    panels[0].set_ylabel("accuracy (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
    figure.suptitle(experiment.title, fontsize=11)
    return save_figure(figure, stem)


def _draw_protocol(panel: Axes, experiment: Experiment, protocol: str) -> None:
    tasks = list(range(1, experiment.n_tasks + 1))
    for number, line in enumerate(experiment.lines):
        found = [line.accuracy(protocol, k) for k in range(experiment.n_tasks)]
        means = [one.mean if one else float("nan") for one in found]
        spread = [(one.deviation or 0.0) if one else 0.0 for one in found]
        colour = COLOURS[number % len(COLOURS)]
        panel.plot(
            tasks,
            means,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            label=f"{line.label} (n={len(line.records)})",
        )
        if any(spread):
            low = [mean - one for mean, one in zip(means, spread, strict=True)]
            high = [mean + one for mean, one in zip(means, spread, strict=True)]
            panel.fill_between(tasks, low, high, color=colour, alpha=0.18, linewidth=0)
    records = experiment.records
    chance = [sum((record.chance[protocol] or [])[k] for record in records) / len(records) for k in range(len(tasks))]
    panel.plot(tasks, [100 * one for one in chance], color="#666666", linestyle=":", label="chance")
    panel.set_title(protocol, fontsize=10)
    panel.set_xlabel("tasks learned")
    panel.set_xticks(tasks)
    panel.set_ylim(0, 100)
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes for the same figure."""
    import matplotlib as mpl

    paths = []
    for suffix in FORMATS:
        file = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else {"Software": None}
        with mpl.rc_context({"svg.hashsalt": "erda", "svg.fonttype": "path"}):
            figure.savefig(file, format=suffix, dpi=160, metadata=metadata)
        paths.append(stem.with_suffix(f".{suffix}"))
        write_whole(paths[-1], file.getvalue())
    return paths
