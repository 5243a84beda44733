"""Accuracy over the number of examples per relation, from none to twenty: a table and a figure.

python research/shots.py --out runs/shots             # OUT/shots.json, shots.png and shots.svg
python research/shots.py --out runs/shots --draw      # the figure again, from OUT/shots.json

Streams have eight tasks of ten relations, sampled from all of FewRel, with the same number of examples for every
relation. Accuracy is `all-seen` after the last task. All methods use the encoder and settings of one preset: MiniLM
with its adapter, of which ERDA trains the last layer. Without examples, a relation is known by its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.benchmark.experiments import PERCENT
from erda.benchmark.measures import ALL_SEEN
from erda.benchmark.report.figures import Figure, Panel, draw_line, line_style, save_figure
from erda.benchmark.run.planned_runs import run_experiment
from erda.benchmark.statistics import Summary
from erda.encoders.frozen import FrozenCache
from erda.errors import ErdaError, join_faults
from erda.files import read_json, write_json
from erda.settings.build import build_run_method, open_cache, open_run_stream
from erda.settings.load import run_settings
from erda.settings.runs import Run
from erda.types import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRESET = "fewrel-5-shot-adapter"


@dataclass(frozen=True, slots=True)
class Curve:
    """A method and its changes to the preset."""

    label: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    knows_names: bool = False


CURVES = {  # folder of the runs -> curve
    "posterior": Curve("Posterior", "posterior", knows_names=True),
    "posterior-patterns": Curve("Posterior with patterns", "posterior", {"patterns": True}, knows_names=True),
    "class-means": Curve("class means", "posterior", {"score": "mean", "name_weight": 0.0}),
    "erda": Curve("ERDA, last layer trained", "erda"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """Accuracy of a method on each stream, for one number of examples per relation."""

    curve: str
    shots: int
    accuracy: tuple[float, ...]

    @property
    def summary(self) -> Summary | None:
        """Mean and deviation over the streams, in per cent."""
        found = Summary.of(self.accuracy)
        return found and found.scaled(PERCENT)

    def line(self) -> str:
        """For the terminal."""
        streams = ", ".join(f"{PERCENT * one:.1f}" for one in self.accuracy)
        mean = self.summary.mean if self.summary else 0.0
        return f"{self.shots:3} examples  {CURVES[self.curve].label:26}{mean:5.1f}  ({streams})"


def measured(asked: argparse.Namespace) -> Iterator[Point]:
    """Points of all curves; methods that ignore names have no point without examples."""
    for shots in asked.shots:
        for name, curve in CURVES.items():
            if shots or curve.knows_names:
                yield Point(name, shots, _accuracy(name, shots, asked))


def _accuracy(name: str, shots: int, asked: argparse.Namespace) -> tuple[float, ...]:
    cut = {"first_shots": max(shots, 1), "test_per_relation": asked.tests}
    settings = run_settings(
        preset=PRESET,
        dataset="fewrel-full",
        shots=max(shots, 1),
        seeds=asked.seeds,
        methods=CURVES[name].method,
        cache_dir=str(asked.out / "cache"),
        settings={**cut, **CURVES[name].settings},
    )
    if not shots:
        cache = open_cache(settings.cache_dir, settings.cache_gb)
        return tuple(by_names(run, cache) for run in settings.runs())
    done = run_experiment(settings, out=asked.out / name / str(shots))
    if done.faults:
        raise ErdaError(join_faults(done.faults))
    return tuple((record.accuracy[ALL_SEEN] or [0.0])[-1] for record in done.records)


def by_names(run: Run, cache: FrozenCache | None) -> float:
    """Accuracy of a method that learned only the names and descriptions of all relations."""
    stream, method = open_run_stream(run), build_run_method(run, cache=cache)
    for task in stream:
        method.learn(Task(task.index, task.relations, ()))
    tests = [stream.test(index) for index in range(len(stream))]
    gold = [relation for test in tests for relation in test.gold]
    best = [relation for test in tests for relation in method.predict(test.examples).best]
    return sum(map(str.__eq__, best, gold)) / len(gold)


def shots_figure(points: Sequence[Point]) -> Figure:
    """One line per method, labelled at its end, with a band of one standard deviation over the streams."""
    return Figure(
        name="shots",
        title="FewRel, 80 relations, MiniLM with its adapter",
        alt=". ".join(point.line().strip() for point in points),
        caption="Mean over streams with a band of one standard deviation.",
        panels=(Panel(partial(_draw, points), width=6.6, height=3.5),),
    )


def _draw(points: Sequence[Point], axes: Axes) -> None:
    """Draw the lines; numbers of examples have equal distances."""
    shots = sorted({point.shots for point in points})
    found = {(point.curve, point.shots): point.summary for point in points}
    for number, (name, curve) in enumerate(CURVES.items()):
        means = draw_line(axes, number, [found.get((name, n)) for n in shots])
        axes.annotate(
            curve.label,
            (len(shots), means[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=line_style(number)["color"],
        )
    axes.set_xticks(range(1, len(shots) + 1), [str(n) for n in shots])
    axes.set_xlabel("examples a relation")
    axes.set_ylabel("all-seen accuracy (%)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", metavar="DIR", type=Path, required=True, help="where records and figure go; what is there is read")
    add("--shots", metavar="N,N", type=numbers, default="0,1,2,5,10,20", help="default: %(default)s")
    add("--seeds", metavar="N,N", type=numbers, default="100,110,120", help="streams to draw (default: %(default)s)")
    add("--tests", metavar="N", type=int, default=25, help="a relation (default: %(default)s)")
    add("--draw", action="store_true", help="only draw what OUT/shots.json holds")
    asked = parser.parse_args(arguments)
    kept = asked.out / "shots.json"
    try:
        points = []
        for point in read_json(kept, list[Point]) if asked.draw else measured(asked):
            print(point.line(), flush=True)
            points.append(point)
        if not asked.draw:
            write_json(kept, [asdict(point) for point in points])
        save_figure(shots_figure(points), asked.out)
    except ErdaError as error:
        print(f"shots.py: {error}", file=sys.stderr)
        return 2
    return 0


def numbers(text: str) -> tuple[int, ...]:
    """Parse integers separated by commas."""
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
