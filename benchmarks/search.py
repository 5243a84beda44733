"""Search settings of one or more methods on validation data, with Optuna.

python benchmarks/search.py --preset fewrel-5-shot --method erda --seeds 100,130 --jobs 2 --out runs/search
python benchmarks/search.py --preset fewrel-5-shot --method emr --space epochs=1,2,5 --trials 3 --out runs/emr
python benchmarks/search.py --preset fewrel-search-adapter --also redoc13-adapter --seeds 100 --out runs/peers

A trial is one choice of values from the method's space: `search.toml`, or --space. The first trial has the preset's own
values; Optuna's TPE sampler chooses the others with a fixed seed. A trial runs on the first stream, and on the others
unless its accuracy is below the median of the trials before it. Each method's best settings are printed and written to
OUT/METHOD.toml, for `erda run --config`. Finished runs are read, so the same command continues an interrupted search.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import optuna

from erda.benchmark.measures import ALL_SEEN, PROTOCOLS
from erda.benchmark.run.planned_runs import CacheSettings, PlannedRun, run_planned
from erda.cli.settings_options import add_settings, read_given
from erda.errors import ErdaError, SettingsError
from erda.files import write_bytes
from erda.settings.load import Layer, given_values, layers_of, settings_from
from erda.settings.runs import RUN_KINDS

SPACES: dict[str, dict[str, list[Any]]] = tomllib.loads(Path(__file__).with_name("search.toml").read_text("utf-8"))
Space = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search over `space` for one method, on the seeds of each of the presets."""

    method: str
    space: Space  # METHOD.NAME or encoder.NAME -> values
    presets: Sequence[Sequence[Layer]]
    protocol: str
    out: Path
    n_processes: int

    def streams(self, values: Mapping[str, Any]) -> list[PlannedRun]:
        """Runs of one choice of values, stream by stream."""
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
        chosen = given_values({"methods": self.method, "evaluate_on": "validation", **values})
        runs = [run for preset in self.presets for run in settings_from([*preset, chosen]).runs()]
        return [PlannedRun(run, self.out / "trials" / digest / Path(run.dataset).name) for run in runs]

    def standing(self) -> dict[str, Any]:
        """The preset's own values of the searched settings."""
        run = self.streams({})[0].asked
        known = {f"{self.method}.{name}": value for name, value in run.settings["method"].items()}
        known |= {f"encoder.{name}": value for name, value in run.settings["encoder"].items()}
        return {name: known[name] for name in self.space if name in known}

    def objective(self, trial: optuna.Trial) -> float:
        """Mean accuracy after the last task over all streams."""
        values = {name: trial.suggest_categorical(name, options) for name, options in self.space.items()}
        first, *rest = self.streams(values)
        accuracies = self._accuracies([first])
        trial.report(accuracies[0], step=0)
        if rest and trial.should_prune():
            raise optuna.TrialPruned
        return mean([*accuracies, *self._accuracies(rest)])

    def _accuracies(self, runs: Sequence[PlannedRun]) -> list[float]:
        cache = CacheSettings.of(settings_from(self.presets[0]))
        finished = run_planned(runs, cache=cache, n_processes=min(self.n_processes, len(runs)), show_bars=False)
        if finished.faults:
            raise ErdaError(finished.faults[0])
        return [(record.accuracy[self.protocol] or [0.0])[-1] for record in finished.records]


def search(asked: Search, n_trials: int) -> optuna.trial.FrozenTrial:
    """Try the preset's values and `n_trials` - 1 others; print each, and return the best."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler, pruner = optuna.samplers.TPESampler(seed=0), optuna.pruners.MedianPruner(n_startup_trials=5)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    standing = asked.standing()
    if standing.keys() == asked.space.keys() and all(value in asked.space[name] for name, value in standing.items()):
        study.enqueue_trial(standing)
    study.optimize(asked.objective, n_trials=n_trials, callbacks=[lambda _, trial: _tell(asked.method, trial)])
    return study.best_trial


def _tell(method: str, trial: optuna.trial.FrozenTrial) -> None:
    value = 100 * (trial.value or trial.intermediate_values.get(0, 0.0))
    print(f"{value:6.2f}  {trial.state.name.lower():8}  {method}  {trial.params}", file=sys.stderr, flush=True)


def read_space(texts: Iterable[str], method: str) -> Space:
    """Parse `NAME=v1,v2`; without any, the space of `search.toml`."""
    space: dict[str, list[Any]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        values = [_value(part) for part in listed.split(",") if part]
        if len(values) < 2 or name in RUN_KINDS:
            raise SettingsError(f"--space {text}: expected NAME=v1,v2,... of a method's or encoder's setting.")
        space[name] = values
    if not (space := space or SPACES.get(method, {})):
        raise SettingsError(f"--space: give one or more; method '{method}' has none in search.toml.")
    return {name if "." in name else f"{method}.{name}": values for name, values in space.items()}


def _value(text: str) -> Any:
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {text}")["value"]
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Search each method, and write its best settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_settings(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="records and best settings")
    parser.add_argument("--space", action="append", default=[], metavar="NAME=V,V", help="values to try")
    parser.add_argument("--trials", type=int, default=12, metavar="N", help="of each method (default: 12)")
    parser.add_argument("--also", action="append", default=[], metavar="PRESET", help="further streams")
    parser.add_argument("--protocol", choices=PROTOCOLS, default=ALL_SEEN, help="default: all-seen")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    options = parser.parse_args(arguments)
    try:
        presets = [[*layers_of(name, options.config), read_given(options)] for name in (options.preset, *options.also)]
        for method in settings_from(presets[0]).methods:
            same = {"presets": presets, "protocol": options.protocol, "out": options.out, "n_processes": options.jobs}
            best = search(Search(method=method, space=read_space(options.space, method), **same), options.trials)
            command = shlex.join(["python", "benchmarks/search.py", *(arguments or sys.argv[1:])])
            lines = [f"# {100 * (best.value or 0.0):.2f} % on validation data ({options.protocol}), chosen by:"]
            lines += [f"#   {command}", "", "[settings]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in best.params.items()]
            write_bytes(options.out / f"{method}.toml", "\n".join([*lines, ""]).encode())
            print(*lines, sep="\n")
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
