"""`erda search`: search settings on validation data."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, below_one, refuse
from erda.cli.printing import print_line, print_tables
from erda.cli.settings import add_settings, load_settings, read_given
from erda.errors import ErdaError, SettingsError, join_faults

if TYPE_CHECKING:
    from erda.benchmark.search.search import Search

EPILOG = """\
NAME is a setting of the method (`erda list methods`), or encoder.NAME. The default method is ERDA, over the BiLSTM
unless --encoder names another encoder. The default space is the paper's grid for ERDA: match_threshold 0.3 to 0.8 and
n_neighbours 1 to 3 (these two only with --corpus), multi_margin and pairwise_margin 0.1 to 0.3, contrastive_margin 0.01
to 0.03, memory_iterations 1 to 3. A search uses validation data only. The same command resumes an interrupted search; a
larger --trials extends it.

examples:
  erda search --preset fewrel-5-shot --seeds 100,130 --out runs/search --jobs 2
  erda search --preset fewrel-5-shot --method emr --space epochs=1:5 --sampler grid --out runs/emr
  erda search --preset fewrel-5-shot --space temperature=0.05:1:log --space encoder.hidden_size=50,100,200 --out runs/t
  erda run --config runs/search/best.toml --out runs/best
"""
TEST_DATA = (
    "evaluate_on: a search uses validation data only. Settings that were chosen on test data say nothing about "
    "new data; measure the chosen ones with `erda run`, which uses test data."
)


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = (
        "Search for settings of one method with Optuna: the best table, and OUT/best.toml for `erda run "
        "--config`; records of every trial are in OUT/trials."
    )
    parser = add_command(commands, "search", about, EPILOG, brief="choose settings of a method on validation data")
    add_settings(parser)
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder of the study, the records and the result"
    )
    parser.add_argument(
        "--space",
        action="append",
        default=[],
        dest="spaces",
        metavar="NAME=VALUES",
        help="values to try: v1,v2,... or low:high or low:high:log (default: the paper's grid)",
    )
    parser.add_argument(
        "--sampler",
        choices=("grid", "tpe", "random"),
        default="tpe",
        help="grid: every choice of values; tpe: Optuna's TPE; random: random choices (default: tpe)",
    )
    parser.add_argument("--trials", type=int, metavar="N", help="trials in all (default: 40; the whole grid for grid)")
    parser.add_argument(
        "--protocol",
        choices=("all-seen", "candidates"),
        default="all-seen",
        help="protocol of the objective: accuracy after the last task, mean over the seeds (default: all-seen)",
    )
    parser.add_argument(
        "--no-prune", action="store_true", help="run poor trials on all seeds too, instead of stopping them early"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trials at once (default: 1)")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Search, and print the best settings."""
    from erda.benchmark.search.result import BEST, best_table, write_best
    from erda.benchmark.search.search import search

    asked = _asked(options)
    print_line(f"Space: {', '.join(map(str, asked.space))}", file=sys.stderr)
    options.kept = f"Finished trials are kept in {options.out}; the same command resumes."
    found = search(asked, out=options.out, n_trials=options.trials, n_processes=options.jobs)
    if write_best(asked, found, out=options.out, command=shlex.join(["erda", *options.arguments])):
        print_tables([best_table(asked, found)])
        print_line(f"Settings of the best trial: {options.out / BEST}")
        print_line(f"Measure them on test data: erda run --config {options.out / BEST} --out DIR")
    if found.faults:
        raise ErdaError(f"Trials that failed: {len(found.faults)}\n{join_faults(found.faults)}")


def _asked(options: argparse.Namespace) -> Search:
    """Validate the options of a search; report all faults at once."""
    from erda.benchmark.search.search import Search
    from erda.benchmark.search.space import default_space, parse_space
    from erda.settings.load import layers_of, merge_layers

    faults = below_one(options, "jobs", "trials")
    asked = argparse.Namespace(**{**vars(options), "evaluate_on": "validation", "methods": options.methods or "erda"})
    try:
        given = merge_layers([*layers_of(options.preset, options.config), read_given(options)])
        if not options.methods and "encoder" not in given:
            asked.encoder = "bilstm"
        settings = load_settings(asked)
        if "evaluate_on" in given and given["evaluate_on"].value != "validation":
            raise SettingsError(TEST_DATA)
        if len(settings.methods) > 1:
            raise SettingsError(f"--method: a search is for one method, got {', '.join(settings.methods)}.")
        method = settings.methods[0]
        space = parse_space(
            options.spaces or default_space(method, with_corpus=bool(settings.corpus)),
            method=method,
            encoder=settings.encoder,
            grid=options.sampler == "grid",
            check=lambda name, value: load_settings(asked, f"{name}={value}"),
        )
    except SettingsError as error:
        raise SettingsError(join_faults([*faults, str(error)])) from error
    refuse(faults)
    return Search(
        settings=settings,
        space=space,
        sampler=options.sampler,
        protocol=options.protocol,
        prune=not options.no_prune,
    )
