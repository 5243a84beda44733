"""Search settings of every method over one encoder on validation data, in one pool of processes.

python benchmarks/peers.py --device cuda --jobs 12 --out runs/peers
python benchmarks/peers.py --preset fewrel-5-shot-mpnet --device cuda --jobs 12 --out runs/mpnet --write
python benchmarks/peers.py --preset fewrel-search-adapter --also redoc13-adapter --seeds 100,110 --out runs/fresh \
    --write fewrel-fresh-adapter

Unlike `erda search`, this searches all methods at once, without Optuna, with the same number of choices per method: the
preset's values, and others sampled from a grid. Every choice runs on the first stream; those at or above the median of
their method run on the others. --also adds streams of another preset. The best is printed and, with --write, written to
the preset, or to another one. Finished runs are read, so the same command resumes an interrupted search.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from statistics import mean, median
from typing import Any

from erda.benchmark.experiments import PERCENT
from erda.benchmark.metrics import ALL_SEEN
from erda.benchmark.records import Record, read_record
from erda.benchmark.run.planned_runs import CacheSettings, PlannedRun, RunOutcome, run_planned
from erda.benchmark.search.space import as_text
from erda.cli.settings_options import add_settings, read_given
from erda.errors import ErdaError
from erda.files import write_bytes
from erda.settings.load import PRESETS, Layer, given_values, layers_of, settings_from
from erda.settings.runs import RunSettings

PRESET = "fewrel-5-shot-adapter"
SEEDS = "100,130"  # task orders of the search
INTERRUPTED = "interrupted: chosen from the finished runs"
MARK = "# Chosen on validation data"  # start of the lines written by a search

Layers = Sequence[Layer]

# method -> grids, each a choice of values for every setting that a search puts into the presets; the rest is theirs
Grid = Mapping[str, tuple[Any, ...]]
FROZEN: Grid = {"train_encoder": (False,), "own_rate": (1e-3, 1e-2, 3e-2), "epochs": (5, 20, 40)}
GRIDS: dict[str, tuple[Grid, ...]] = {
    "joint": (
        FROZEN,
        {"train_encoder": (True,), "learning_rate": (5e-5, 1e-4), "own_rate": (3e-4, 1e-3, 1e-2), "epochs": (2, 3, 6)},
    ),
    "seqrun": (
        FROZEN,
        {"train_encoder": (True,), "learning_rate": (2e-5, 2e-4), "own_rate": (1e-2, 3e-2), "epochs": (3, 10)},
    ),
    "emr": (
        {"train_encoder": (False,), "own_rate": (3e-4, 1e-3, 1e-2), "epochs": (2, 5)},
        {"train_encoder": (True,), "learning_rate": (1e-5, 2e-5, 5e-5), "own_rate": (3e-4, 1e-3), "epochs": (1, 2, 3)},
    ),
    "emar": (
        {
            "train_encoder": (True,),
            "learning_rate": (2e-4, 5e-4, 1e-3),
            "own_rate": (1e-3, 1e-2, 3e-2),
            "temperature": (0.1, 0.2, 0.5),
        },
    ),
    "idlvq-c": (
        {
            "train_encoder": (False, True),
            "unit_vectors": (True,),
            "learning_rate": (2e-5, 5e-5, 2e-4),
            "own_rate": (1e-5, 1e-4),
            "base_epochs": (3, 8),
            "margin": (0.5, 1.0, 2.0),
        },
    ),
    "sckd": (
        {
            "train_encoder": (True,),
            "learning_rate": (2e-4, 5e-4, 1e-3),
            "own_rate": (1e-4, 3e-4),
            "new_epochs": (10, 20),
            "memory_epochs": (5, 10),
        },
    ),
    "cpl": (
        {
            "learning_rate": (5e-6, 2e-5, 5e-5),
            "temperature": (0.02, 0.05, 0.1),
            "shot_means": (True,),
            "memory_epochs": (1, 3, 6),
        },
    ),
    "dcre": (
        {
            "learning_rate": (5e-6, 2e-5, 5e-5),
            "temperature": (0.05, 0.1),
            "shot_means": (True,),
            "memory_epochs": (1, 3),
            "centred": (False, True),
            "prototype_share": (0.5, 0.8),
        },
    ),
    "sirus": (
        {
            "learning_rate": (5e-6, 2e-5, 5e-5),
            "temperature": (0.05, 0.1),
            "shot_means": (True,),
            "memory_epochs": (1, 3),
            "centred": (False, True),
            "prototype_share": (0.5, 0.8),
        },
    ),
    "erda": (
        {"learning_rate": (5e-6, 1e-5, 2e-5, 1e-4), "temperature": (0.05, 0.1, 0.2), "memory_iterations": (2, 5, 8)},
    ),
    "posterior": (
        {
            "name_weight": (1.0, 2.0, 3.0, 4.0),
            "shrinkage": (0.5, 0.7, 0.8),
            "between_shrinkage": (0.3, 0.6),
            "between_weight": (0.25, 0.5, 1.0),
        },
    ),
    "posterior-tuned": (
        {
            "learning_rate": (1e-5, 3e-5, 1e-4, 3e-4),
            "epochs": (2, 4),
            "part": (0.5, 0.7),
            "temperature": (0.1, 0.2),
            "name_weight": (2.0, 3.0),
        },
    ),
}
# the same for the paper's use of a transformer: [CLS] means little before its layer is trained, so steps are larger
WIDE: Grid = {
    "train_encoder": (True,),
    "learning_rate": (5e-5, 2e-4, 5e-4, 1e-3),
    "own_rate": (1e-3, 1e-2),
    "epochs": (3, 6, 10),
}
PAPER_GRIDS: dict[str, tuple[Grid, ...]] = {
    "joint": (WIDE,),
    "seqrun": (WIDE,),
    "emr": (WIDE,),
    "emar": (
        {
            "train_encoder": (True,),
            "learning_rate": (1e-4, 2e-4, 5e-4, 1e-3),
            "own_rate": (3e-4, 1e-3),
            "temperature": (0.2, 0.5),
        },
    ),
    "idlvq-c": (
        {
            "train_encoder": (False,),
            "unit_vectors": (True,),
            "own_rate": (1e-4, 1e-3, 1e-2),
            "base_epochs": (8, 20),
            "margin": (0.5, 1.0),
        },
        {
            "train_encoder": (True,),
            "unit_vectors": (False, True),
            "learning_rate": (2e-4, 5e-4),
            "own_rate": (1e-2,),
            "base_epochs": (3, 8),
            "margin": (0.5,),
        },
    ),
    "erda": ({"learning_rate": (2e-5, 5e-5, 1e-4, 2e-4), "temperature": (0.1, 0.2), "memory_iterations": (1, 2)},),
}


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One choice of values for a method, the folder of its records, and its accuracy on each order."""

    method: str
    values: Mapping[str, Any]
    folder: Path
    reached: list[float]

    def planned(self, seed: int, layers: Layers) -> PlannedRun:
        """Run of the choice on one stream."""
        own = {f"{self.method}.{name}": value for name, value in self.values.items()}
        fixed = {"methods": self.method, "seeds": seed, "evaluate_on": "validation"}
        (run,) = settings_from([*layers, given_values({**fixed, **own})]).runs()
        return PlannedRun(run, self.folder / Path(run.dataset).name)

    def line(self) -> str:
        """For the terminal."""
        return (
            f"{PERCENT * mean(self.reached):6.2f}  {len(self.reached)}  {self.method:8} {' '.join(_texts(self.values))}"
        )


def _texts(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={as_text(value)}" for name, value in values.items()]


def choices(settings: RunSettings, out: Path, trials: int) -> list[Choice]:
    """For each method the preset's values and `trials` - 1 others, sampled from its grids with a fixed seed."""
    grids = PAPER_GRIDS if settings.encoder_settings.get("mode") == "paper" else GRIDS
    found = []
    for method in [name for name in grids if name in settings.methods]:
        every = [dict(zip(grid, values, strict=True)) for grid in grids[method] for values in product(*grid.values())]
        standing = {name: settings.method_settings[method][name] for name in dict.fromkeys(chain(*grids[method]))}
        others = [one for one in every if {**standing, **one} != standing]
        drawn = [standing, *random.Random(0).sample(others, min(trials - 1, len(others)))]
        found += [Choice(method, values, out / "-".join([method, *_texts(values)]), []) for values in drawn]
    return found


def search(asked: Sequence[Choice], presets: Sequence[Layers], n_processes: int) -> list[str]:
    """Run the choices on the first stream, and the better half of each method on all others; return the faults.

    The streams are the seeds of every preset.
    """
    settings = settings_from(presets[0])
    first, *rest = [(seed, layers) for seed in settings.seeds for layers in presets]
    going, faults = list(asked), list[str]()
    for streams in filter(None, ([first], rest)):
        planned = [(one, one.planned(*stream)) for stream in streams for one in going]
        runs, cache = [run for _, run in planned], CacheSettings.of(settings)
        try:
            faults += run_planned(runs, cache=cache, n_processes=n_processes, show_bars=False, on_outcome=_tell).faults
        except KeyboardInterrupt:
            faults.append(INTERRUPTED)
        cut = {(one.method, run.asked.dataset, run.asked.seed) for one, run in planned if not run.is_finished}
        for one, run in planned:
            partial = INTERRUPTED in faults and (one.method, run.asked.dataset, run.asked.seed) in cut
            if run.is_finished and not partial:  # choices are compared on the same streams
                one.reached.append(_last(read_record(run.folder)))
        if INTERRUPTED in faults:
            break
        going = [one for one in going if one.reached]
        names = {one.method for one in going}
        middle = {name: median([mean(one.reached) for one in going if one.method == name]) for name in names}
        going = [one for one in going if mean(one.reached) >= middle[one.method]]
    return faults


def _last(record: Record) -> float:
    return (record.accuracy[ALL_SEEN] or [0.0])[-1]


def _tell(outcome: RunOutcome) -> None:
    record = outcome.result
    said = f"{outcome.fault}"
    if record is not None:
        seconds = {name: round(sum(each), 1) for name, each in record.seconds.items()}
        said = f"{PERCENT * _last(record):.2f}, seconds {seconds}"
    asked = outcome.work.asked
    print(
        f"{outcome.work.out.parent.name} {Path(asked.dataset).name} {asked.seed}: {said}", file=sys.stderr, flush=True
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, print every choice and, as lines of a preset, the best of each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_settings(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the records go")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once")
    parser.add_argument("--trials", type=int, default=12, metavar="N", help="choices of a method (default: 12)")
    parser.add_argument(
        "--also", action="append", default=[], metavar="PRESET", help="search on the streams of this preset too"
    )
    parser.add_argument(
        "--write", nargs="?", const="", metavar="PRESET", help="put the best settings into the preset, or another one"
    )
    parser.set_defaults(preset=PRESET, seeds=SEEDS)
    options = parser.parse_args(arguments)
    try:
        names, given = [options.preset, *options.also], read_given(options)
        presets = [[*layers_of(name, options.config), given] for name in names]
        asked = choices(settings_from(presets[0]), options.out, options.trials)
        faults = search(asked, presets, options.jobs)
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    done = sorted(
        (one for one in reversed(asked) if one.reached), key=lambda one: (len(one.reached), mean(one.reached))
    )
    print(*(one.line() for one in done), sep="\n")
    lines = chosen(done, command=shlex.join(["python", "benchmarks/peers.py", *(arguments or sys.argv[1:])]))
    print(*lines, sep="\n")
    if options.write is not None:
        write_preset(PRESETS / f"{options.write or options.preset}.toml", lines)
    print(*faults, sep="\n", file=sys.stderr)
    return 2 if faults else 0


def chosen(done: Sequence[Choice], *, command: str) -> list[str]:
    """Best choice of each method as lines of a preset; the last of `done` is the best."""
    lines = [f"{MARK} (all-seen after the last task) by:", f"#   {command}"]
    for method, one in {one.method: one for one in done}.items():
        n = sum(other.method == method for other in done)
        lines.append(
            f"# {method}: {PERCENT * mean(one.reached):.2f} % over {len(one.reached)} streams, the best of {n}"
        )
        lines += [f"{method}.{name} = {json.dumps(value)}" for name, value in one.values.items()]
    return lines


def write_preset(path: Path, lines: Sequence[str]) -> None:
    """Write lines to the end of a preset, replacing those of an earlier search."""
    kept = path.read_text(encoding="utf-8").partition(MARK)[0].rstrip()
    write_bytes(path, "\n".join([kept, "", *lines, ""]).encode())
    print(path)


if __name__ == "__main__":
    raise SystemExit(main())
