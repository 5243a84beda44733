"""Figures of a report. Each is a `Drawing`: some panels that stand beside each other in a file and flow on the page.

`draw_*` looks at records and says what is drawn; `save_drawing` and `page_panels` paint it. Matplotlib and scikit-learn
are imported where they are used.
"""

from erda.benchmark.report.figures.confusion import Confusion, confusion_table, count_confusion, draw_confusion
from erda.benchmark.report.figures.cost import draw_cost
from erda.benchmark.report.figures.curve import draw_curve
from erda.benchmark.report.figures.drawing import Drawing, Panel, page_panels, save_drawing
from erda.benchmark.report.figures.forgetting import draw_forgetting
from erda.benchmark.report.figures.sweep import draw_sweep
from erda.benchmark.report.figures.tsne import draw_tsne

__all__ = [
    "Confusion",
    "Drawing",
    "Panel",
    "confusion_table",
    "count_confusion",
    "draw_confusion",
    "draw_cost",
    "draw_curve",
    "draw_forgetting",
    "draw_sweep",
    "draw_tsne",
    "page_panels",
    "save_drawing",
]
