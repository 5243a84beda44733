"""Accuracy over the number of examples a relation has, from none to twenty: a table and a figure.

python benchmarks/shots.py --out runs/shots --figure docs/shots.png

Streams of eight tasks of ten relations are drawn from all of FewRel, with as many examples for every relation, the
first ones included; asked are all relations after the last task (`all-seen`). The encoder is the same for all: MiniLM
with its adapter, of which ERDA trains the last layer. Without an example a relation is known by its name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from erda.benchmark.metrics import ALL_SEEN
from erda.benchmark.run.many import run_all
from erda.errors import ErdaError
from erda.files import write_json
from erda.settings.build import build_run_method, open_cache, open_run_stream
from erda.settings.load import run_settings
from erda.types import Task

SHOTS = (0, 1, 2, 5, 10, 20)
LAST_LAYER = {"encoder.trained_layers": 1, "learning_rate": 1e-4, "temperature": 0.1, "batch_size": 16}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # label -> method, settings; ERDA's as in the preset *-adapter
    "Posterior": ("posterior", {}),
    "class means": ("posterior", {"score": "mean", "name_weight": 0.0}),
    "ERDA": ("erda", LAST_LAYER),
}
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Point:
    """Accuracy of a method with so many examples a relation, stream by stream."""

    label: str
    shots: int
    accuracy: tuple[float, ...]


def measured(label: str, shots: int, asked: argparse.Namespace) -> Point | None:
    """One point of the figure; None for a method that needs examples where there are none."""
    method, own = METHODS[label]
    if not shots and (method != "posterior" or not own.get("name_weight", 1)):
        return None
    first = max(shots, 1)
    settings = run_settings(
        dataset="fewrel-full",
        shots=first,
        seeds=tuple(map(int, asked.seeds.split(","))),
        methods=method,
        encoder=asked.encoder,
        settings={"first_shots": first, "test_per_relation": asked.tests, "cache_dir": str(asked.out / "cache"), **own},
    )
    if shots:
        done = run_all(settings, out=asked.out / label.replace(" ", "-") / str(shots))
        if done.faults:
            raise ErdaError("\n".join(done.faults))
        return Point(label, shots, tuple((record.accuracy[ALL_SEEN] or [0.0])[-1] for record in done.records))
    return Point(label, 0, tuple(_by_names(run) for run in settings.runs()))


def _by_names(run: Any) -> float:
    """Accuracy of a method that was told the names and descriptions of all relations, and nothing else."""
    stream = open_run_stream(run)
    method = build_run_method(run, cache=open_cache(run.settings.get("cache_dir", ""), 4.0))
    for task in stream:
        method.learn(Task(task.index, task.relations, ()))
    right = total = 0
    for index in range(len(stream)):
        test = stream.test(index)
        best = method.predict(test.examples).best
        right += sum(one == gold for one, gold in zip(best, test.gold, strict=True))
        total += len(best)
    return right / total


def draw(points: Sequence[Point], path: Path) -> None:
    """A line a method, the streams' range as a band."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    places = {shots: place for place, shots in enumerate(sorted({point.shots for point in points}))}
    for label in METHODS:
        own = sorted((point for point in points if point.label == label), key=lambda point: point.shots)
        where = [places[point.shots] for point in own]
        (line,) = axes.plot(where, [PERCENT * fmean(point.accuracy) for point in own], "o-", label=label)
        lowest, highest = ([PERCENT * end(point.accuracy) for point in own] for end in (min, max))
        axes.fill_between(where, lowest, highest, alpha=0.15, color=line.get_color())
    axes.set_xticks(list(places.values()), [str(shots) for shots in places])
    axes.set_xlabel("examples a relation")
    axes.set_ylabel("all-seen accuracy of 80 relations, %")
    axes.set_ylim(0, PERCENT)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="where the records go")
    parser.add_argument("--figure", metavar="FILE", type=Path, help="where the figure goes (default: OUT/shots.png)")
    parser.add_argument("--shots", metavar="N,N", default=",".join(map(str, SHOTS)), help="default: %(default)s")
    parser.add_argument("--seeds", metavar="N,N", default="100,110,120", help="streams to draw (default: %(default)s)")
    parser.add_argument("--tests", metavar="N", type=int, default=25, help="a relation (default: %(default)s)")
    parser.add_argument("--encoder", metavar="NAME", default="minilm", help="default: %(default)s")
    asked = parser.parse_args()
    points = []
    try:
        for shots in map(int, asked.shots.split(",")):
            for label in METHODS:
                point = measured(label, shots, asked)
                if point is not None:
                    points.append(point)
                    rows = ", ".join(f"{PERCENT * one:.1f}" for one in point.accuracy)
                    print(
                        f"{shots:3} examples  {label:12} {PERCENT * fmean(point.accuracy):5.1f}  ({rows})", flush=True
                    )
    except ErdaError as error:
        print(f"shots.py: {error}", file=sys.stderr)
        return 2
    write_json(asked.out / "shots.json", json.loads(json.dumps([asdict(point) for point in points])))
    draw(points, asked.figure or asked.out / "shots.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
