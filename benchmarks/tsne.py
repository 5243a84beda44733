"""t-SNE of test examples before and after a task: the paper's figure, from the records of `erda paper tsne`.

For each method, the run of its first record learns two tasks again. Its vectors of four relations of the first task and
two of the second, drawn by the seed, are projected to a plane.

python benchmarks/tsne.py runs/paper/fewrel-5-shot-n-tasks-2 --out runs/tsne
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.benchmark.experiments import Experiment, group_records
from erda.benchmark.records import Record, read_records
from erda.benchmark.report.figures import Figure, Panel, line_style, matplotlib_text, save_figure
from erda.data.streams import TaskStream
from erda.errors import ErdaError, RecordError, StreamError
from erda.settings.build import build_run_method, open_run_stream
from erda.settings.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_BASE, N_NEW = 4, 2  # relations of the first task and of the second, as in the paper
LEAST, PERPLEXITY, SEED = 5, 30.0, 0  # of t-SNE; LEAST is the minimum number of points


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Vectors [n, dim] of one method before or after the second task, and their relations [n]."""

    title: str
    vectors: np.ndarray
    relations: np.ndarray


def tsne_figure(experiment: Experiment) -> Figure:
    """t-SNE of base relations before a task, and of base and new relations after it, for each line."""
    order: dict[str, str] = {}  # relation -> its name, base first
    base: set[str] = set()
    clouds: list[Cloud] = []
    for line in experiment.lines:
        run = Run(**{field.name: getattr(line.first, field.name) for field in fields(Run)})
        drawn = drawn_relations(line.first)
        base |= set(drawn[0])
        order |= {one: line.first.relation_names.get(one, one) for group in drawn for one in group}
        clouds += run_clouds(run, line.label, drawn)
    new = [name for relation, name in order.items() if relation not in base]
    points = [(cloud, project(cloud.vectors)) for cloud in clouds]
    return Figure(
        name="tsne",
        title=f"t-SNE of test examples: {experiment.title}",
        alt=f"Test examples of {len(order)} relations as points on a plane, before and after a new task, for "
        f"{', '.join(line.label for line in experiment.lines)}. New relations: {', '.join(new)}.",
        caption="Each point is a test example; circles are relations of the first task, other marks those of the new "
        "one. Compact groups that keep apart are good. t-SNE keeps neighbours, not distances; each panel is its own.",
        panels=tuple(Panel(partial(_draw, cloud, at, order, base), width=3.9, height=3.4) for cloud, at in points),
    )


def drawn_relations(record: Record) -> list[list[str]]:
    """Draw the relations of the first two tasks of a record's stream by its seed."""
    if record.n_tasks < 2:
        raise StreamError(f"{record.title}: t-SNE before and after a task needs a stream of two tasks or more.")
    rng = np.random.default_rng(record.seed)
    sizes = zip(record.order[:2], (N_BASE, N_NEW), strict=True)
    return [sorted(rng.choice(ids, min(n, len(ids)), replace=False).tolist()) for ids, n in sizes]


def run_clouds(run: Run, label: str, drawn: Sequence[Sequence[str]]) -> list[Cloud]:
    """Learn two tasks; after each, embed the test examples of the drawn relations."""
    stream, method, clouds = open_run_stream(run), build_run_method(run), []
    for k, said in enumerate(("before the new task", "after it")):
        method.learn(stream[k])
        examples, relations = _tests(stream, drawn[: k + 1])
        clouds.append(Cloud(f"{label}, {said}", method.encoder.embed(examples), np.array(relations)))
    return clouds


def _tests(stream: TaskStream, drawn: Sequence[Sequence[str]]) -> tuple[list, list[str]]:
    tests = [zip(stream.test(k).examples, stream.test(k).gold, strict=True) for k in range(len(drawn))]
    found = [(one, gold) for k, test in enumerate(tests) for one, gold in test if gold in drawn[k]]
    return [one for one, _ in found], [gold for _, gold in found]


def project(vectors: np.ndarray) -> np.ndarray:
    """Project vectors [n, dim] to [n, 2] by t-SNE, with a fixed seed and a perplexity below n / 3."""
    from sklearn.manifold import TSNE

    n = len(vectors)
    if n < LEAST or not np.isfinite(vectors).all():
        raise RecordError(f"t-SNE needs at least {LEAST} rows of finite numbers, got {n} rows.")
    start = "pca" if vectors.shape[1] >= 2 else "random"
    flat = TSNE(perplexity=min(PERPLEXITY, (n - 1) / 3), init=start, random_state=SEED)
    return flat.fit_transform(vectors.astype(np.float64))


def _draw(cloud: Cloud, points: np.ndarray, order: dict[str, str], base: set[str], axes: Axes) -> None:
    for number, (relation, name) in enumerate(order.items()):
        own = points[cloud.relations == relation]
        if len(own):
            style = line_style(number)
            marker = "o" if relation in base else style["marker"]
            look = {"s": 14, "color": style["color"], "marker": marker, "linewidths": 0, "alpha": 0.8}
            axes.scatter(own[:, 0], own[:, 1], label=matplotlib_text(name), **look)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.set_title(matplotlib_text(cloud.title), fontsize=9.5)
    axes.margins(0.06)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figure of the first experiment in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", metavar="DIR", type=Path, help="folder with the records of `erda paper tsne`")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for tsne.png and tsne.svg")
    options = parser.parse_args(arguments)
    try:
        experiment = group_records(read_records(options.records).records)[0]
        print(*save_figure(tsne_figure(experiment), options.out), sep="\n")
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
