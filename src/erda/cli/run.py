"""`erda run`: methods on streams, one record each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from erda.cli.checking import below_one, refuse, without_effect

FLAGS = {  # name in a settings file -> (flag, metavar, help)
    "dataset": (
        "--dataset",
        "NAME",
        "a name of `erda list datasets`, or a file or folder of your own (default: atlas)",
    ),
    "shots": ("--shots", "K", "examples a relation after the first task (default: the dataset's own)"),
    "methods": ("--method", "NAMES", "one or more of `erda list methods`, separated by commas (default: erda)"),
    "encoder": ("--encoder", "NAME", "one of `erda list encoders`, a model folder or a hub name (default: bilstm)"),
    "order_family": ("--order-family", "NAME", "published task orders and their seeds: erda or sckd (default: erda)"),
    "seeds": ("--seeds", "N,N", "streams to run (default: all six of the order family)"),
    "device": ("--device", "NAME", "cpu, cuda or cuda:N (default: cpu)"),
    "corpus": ("--corpus", "DIR", "corpus with an index (`erda corpus`): where ERDA finds extra examples"),
    "evaluate_on": ("--evaluate-on", "POOL", "test or validation; choose settings on validation (default: test)"),
}
EPILOG = """\
what is given later wins: built-in defaults, --preset, --config, --set, the flags above

examples:
  erda run --dataset fewrel --shots 5 --method erda --encoder bilstm --order-family erda --seeds 100,110 --out runs/x
  erda run --preset fewrel-5-shot --method erda,seqrun --out runs/main --jobs 2
  erda run --preset fewrel-5-shot --out runs/main --engine ray --address auto
  erda run --preset fewrel-5-shot --corpus corpora/wiki --out runs/augmented
  erda run --dataset my/examples.jsonl --set way=3 --set erda.contrastive_weight=0.2 --out runs/mine

A finished run is not repeated; one that was stopped goes on after its last learned task. On Ray a run that was stopped
begins anew; its files come back to OUT when it is finished, so that nodes need not share storage.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "run",
        help="learn streams of tasks and record how well",
        description="Run methods on streams of tasks. Each run leaves OUT/METHOD/SEED/record.json.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the records go")
    add_engine(parser)
    parser.add_argument("--keep-methods", action="store_true", help="keep what was learned in OUT/METHOD/SEED/method")
    parser.set_defaults(handler=run)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is run: those of `load_settings`."""
    for name, (flag, metavar, text) in FLAGS.items():
        parser.add_argument(flag, dest=name, metavar=metavar, help=text)
    parser.add_argument("--preset", metavar="NAME", help="settings that come with erda: `erda list presets`")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file (docs/benchmark.md)")
    add_sets(parser, "a setting of every method that has it; METHOD.NAME for one method, encoder.NAME for the encoder")


def add_sets(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--set`, which may be given several times."""
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="NAME=VALUE", help=text)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where runs happen."""
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="runs at once (default: 1; on Ray as many as the cluster has CPUs)"
    )
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster (default: local)"
    )
    parser.add_argument(
        "--address", metavar="ADDR", help="Ray cluster: auto or HOST:PORT (default: one of this machine alone)"
    )


def engine_of(options: argparse.Namespace) -> dict[str, Any]:
    """What `run_all` and `run_many` are told about where runs happen."""
    refuse([*below_one(options, "jobs"), *without_effect(options, local=(), ray=("address",))])
    return {"n_processes": options.jobs, "engine": options.engine, "address": options.address}


def run(options: argparse.Namespace) -> int:
    """Run, and print what came out."""
    from erda.benchmark.report.experiments import group_records
    from erda.benchmark.report.result_tables import accuracy_table, final_table
    from erda.benchmark.run.loop import run_all
    from erda.cli.printing import print_tables
    from erda.errors import ErdaError, join_faults, said_once
    from erda.settings.runs import load_settings

    engine = engine_of(options)
    settings = load_settings(
        preset=options.preset,
        file=options.config,
        sets=options.sets,
        flags={name: getattr(options, name) for name in FLAGS},
    )
    try:
        finished = run_all(settings, out=options.out, keep_methods=options.keep_methods, **engine)
    except KeyboardInterrupt:
        what = f"What was learned is kept in {options.out}; the same command goes on after the last learned task."
        print(f"\nStopped. {what}", file=sys.stderr)
        return 130
    for experiment in group_records(finished.records):
        tables = [accuracy_table(experiment, protocol) for protocol in experiment.protocols]
        print_tables([*tables, final_table(experiment)])
    if finished.records:
        n_new = len(finished.records) - finished.n_found
        print(f"Runs done: {n_new}; there already: {finished.n_found}. Records: {options.out}")
        print(f"Tables and figures: erda report {options.out}")
    if finished.faults:
        raise ErdaError(f"Runs that failed: {len(finished.faults)}\n{join_faults(said_once(finished.faults))}")
    return 0
