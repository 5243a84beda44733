"""Figures as values, and their rendering as PNG and SVG.

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
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from erda.files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib import figure as mpl_figure
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

INK = "#1c2024"
MUTED = "#6a717a"
GRID = "#dcdfe3"
# Okabe and Ito's palette for the colour-blind; lines also differ in marker and dash
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.")
FORMATS = ("png", "svg")
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "erda",  # reproducible bytes
}


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
        figure.suptitle(as_text("\n".join(lines)), fontsize=11)
        height += 0.2 * (len(lines) - 1)
    figure.set_size_inches(sum(widths), height)
    return figure


def as_text(text: str) -> str:
    """Escape text for Matplotlib: dollars start no formula, a leading underscore hides no label."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def tidy(axes: Axes) -> None:
    """Style axes: light horizontal grid lines, no box."""
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(color=MUTED)


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dash of a line; the first 21 differ."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
    }


# -- from Matplotlib to bytes ------------------------------------------------------------------------------------------


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names in other scripts
        yield


def _bytes(figure: mpl_figure.Figure, suffix: str) -> bytes:
    file = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type") if suffix == "svg" else ("Software",))
    figure.savefig(file, format=suffix, dpi=160, metadata=metadata)
    return file.getvalue()
