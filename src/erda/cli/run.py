"""`erda run`: run methods on streams; each run writes one record."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from erda.cli.checking import Commands, add_command, below_one, refuse
from erda.cli.printing import print_line, print_tables
from erda.cli.settings_options import add_settings, load_settings
from erda.errors import ErdaError, join_faults, merge_faults

if TYPE_CHECKING:
    from erda.settings.runs import RunSettings

EPILOG = """\
Later sources win: built-in defaults, --preset, --config, --set, the flags above. Finished runs are not repeated;
an interrupted run starts again. To use several machines, give each of them other --seeds and copy the folders together.

examples:
  erda run --dataset fewrel --shots 5 --method erda --encoder bilstm --order-family erda --seeds 100,110 --out runs/x
  erda run --preset fewrel-5-shot --method erda,seqrun --out runs/main --jobs 2
  erda run --preset fewrel-5-shot --corpus corpora/wiki --out runs/augmented
  erda run --dataset my/examples.jsonl --set way=3 --out runs/mine
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = "Run methods on streams of tasks. Each run writes OUT/METHOD/SEED/record.json."
    parser = add_command(commands, "run", about, EPILOG, brief="run methods on streams of tasks")
    add_settings(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the records")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    parser.add_argument("--keep-methods", action="store_true", help="save learned methods in OUT/METHOD/SEED/method")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Run, and print the result tables."""
    from erda.benchmark.experiments import group_records
    from erda.benchmark.records import FoundRecord
    from erda.benchmark.report.result_tables import accuracy_table, final_table
    from erda.benchmark.run.planned_runs import run_experiment

    refuse(below_one(options, "jobs"))
    settings = load_settings(options)
    warn_untrained(settings)
    options.kept = f"Finished runs are kept in {options.out}; the same command continues with the others."
    finished = run_experiment(settings, out=options.out, n_processes=options.jobs, keep_methods=options.keep_methods)
    for experiment in group_records(map(FoundRecord, finished.records)):
        tables = [accuracy_table(experiment, protocol) for protocol in experiment.protocols]
        print_tables([*tables, final_table(experiment)])
    notes = [note for record in finished.records for note in record.manifest.get("notes", ())]
    for note in {note.partition(":")[0]: note for note in reversed(notes)}.values():
        print_line(f"Note: {note}.")
    if finished.records:
        n_new = len(finished.records) - finished.n_found
        print_line(f"Runs done: {n_new}; already there: {finished.n_found}. Records: {options.out}")
        print_line(f"Tables and figures: erda report {options.out}")
    if finished.faults:
        raise ErdaError(f"Runs that failed: {len(finished.faults)}\n{join_faults(merge_faults(finished.faults))}")


def warn_untrained(settings: RunSettings) -> None:
    """Warn about a randomly initialised encoder under a method that does not train it."""
    from erda.encoders import ENCODERS
    from erda.methods import METHODS

    entry = ENCODERS.get(settings.encoder)
    for method in (METHODS[name] for name in settings.methods if entry and not entry.is_pretrained):
        if not method.trains:
            said = (
                f"{method.__name__} trains nothing, and a BiLSTM starts at random; the paper's method is --method erda."
            )
            print_line(said, file=sys.stderr)
