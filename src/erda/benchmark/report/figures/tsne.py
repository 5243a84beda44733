"""t-SNE of test examples before and after a new task, as in the paper, from `embeddings.npz`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.experiments import Experiment
from erda.benchmark.report.figures.figure import Figure, Panel, as_text, line_style
from erda.errors import RecordError
from erda.files import read_arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EMBEDDINGS = "embeddings.npz"
ARRAYS = ("vectors_before", "relations_before", "vectors_after", "relations_after", "base", "new")
LEAST = 5  # minimum number of points
PERPLEXITY = 30.0
SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Points [n, 2] of one line before or after the task, and their relations."""

    title: str
    points: np.ndarray
    relations: np.ndarray


def tsne_figure(experiment: Experiment) -> Figure:
    """t-SNE of base relations before a task, and of base and new relations after it, for each line with vectors."""
    scatters: list[Scatter] = []
    order: dict[str, str] = {}  # relation -> its name, base first
    base: set[str] = set()
    labels = []
    for line in experiment.lines:
        having = (one for one in line.found if one.folder is not None and (one.folder / EMBEDDINGS).exists())
        found = next(having, None)
        if found is None or found.folder is None:
            continue
        path = found.folder / EMBEDDINGS
        arrays = _read(path)
        labels.append(line.label)
        base |= set(arrays["base"].tolist())
        for relation in (*arrays["base"].tolist(), *arrays["new"].tolist()):
            order.setdefault(relation, found.record.relation_names.get(relation, relation))
        for time, said in (("before", "before the new task"), ("after", "after it")):
            points = project(arrays[f"vectors_{time}"], path)
            scatters.append(Scatter(f"{line.label}, {said}", points, arrays[f"relations_{time}"]))
    if not scatters:
        raise RecordError(f"No t-SNE: no run of these has an {EMBEDDINGS}, which `erda paper` writes.")
    new = [name for relation, name in order.items() if relation not in base]
    return Figure(
        name="tsne",
        title=f"t-SNE of test examples: {experiment.title}",
        alt=f"Test examples of {len(order)} relations as points on a plane, before and after a new task, for "
        f"{', '.join(labels)}. New relations: {', '.join(new)}.",
        caption="Each point is a test example; circles are relations of the first task, other marks those of the new "
        "one. Compact groups that keep apart are good. t-SNE keeps neighbours, not distances; each panel is its own.",
        panels=tuple(Panel(partial(_draw_points, one, order, base), width=3.9, height=3.4) for one in scatters),
    )


def project(vectors: np.ndarray, path: Path) -> np.ndarray:
    """Project vectors [n, dim] to [n, 2] by t-SNE, with a fixed seed and a perplexity below n / 3."""
    from sklearn.manifold import TSNE

    n = len(vectors)
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or n < LEAST or not np.isfinite(vectors).all():
        raise RecordError(f"{path}: t-SNE needs at least {LEAST} rows of finite numbers; run again.")
    perplexity = min(PERPLEXITY, (n - 1) / 3)
    start = "pca" if vectors.shape[1] >= 2 else "random"
    return TSNE(perplexity=perplexity, init=start, random_state=SEED).fit_transform(vectors.astype(np.float64))


def _read(path: Path) -> dict[str, np.ndarray]:
    arrays = read_arrays(path, error=RecordError, remedy="Delete it and run again.")
    missing = [name for name in ARRAYS if name not in arrays]
    if missing or any(
        arrays[f"vectors_{time}"].shape[:1] != arrays[f"relations_{time}"].shape for time in ("before", "after")
    ):
        said = f"lacks {', '.join(missing)}" if missing else "does not hold one relation for each vector"
        raise RecordError(f"{path}: {said}. Delete it and run again.")
    return arrays


def _draw_points(scatter: Scatter, order: dict[str, str], base: set[str], axes: Axes) -> None:
    for number, (relation, name) in enumerate(order.items()):
        own = scatter.points[scatter.relations == relation]
        if not len(own):
            continue
        style = line_style(number)
        axes.scatter(
            own[:, 0],
            own[:, 1],
            s=14,
            color=style["color"],
            marker="o" if relation in base else style["marker"],
            linewidths=0,
            alpha=0.8,
            label=as_text(name),
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(as_text(scatter.title), fontsize=9.5)
    axes.margins(0.06)
