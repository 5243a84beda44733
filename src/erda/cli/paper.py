"""`erda paper`: the tables and figures of the paper."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EXAMPLES = """examples:
  erda paper --list
  erda paper main --jobs 2
  erda paper --corpus corpora/wiki --jobs 2
  erda paper main ablation lambda --corpus corpora/wiki
  erda paper bert --device cuda --corpus corpora/wiki
  erda paper main --dataset atlas --seeds 100 --out runs/paper-atlas
  erda paper --engine ray --address 10.0.0.1:6379

The same command again goes on where it stopped; runs that are finished are read. Rows that learn with extra examples
need a corpus with an index (docs/corpus.md) and are left out without one.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = "Run the paper's tables and figures, and write the report."
    parser = subparsers.add_parser(
        "paper", help=about, description=about, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="which tables (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="list the tables and stop")
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="default: runs/paper")
    parser.add_argument("--corpus", metavar="DIR", help="a corpus with an index, for the augmented rows")
    parser.add_argument("--seeds", metavar="LIST", help="fewer or other seeds, e.g. 100,110 (default: six orders)")
    parser.add_argument("--dataset", metavar="NAME", help="another dataset for all tables, e.g. atlas")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--set", action="append", default=[], dest="sets", metavar="NAME=VALUE", help="a setting of every run"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at work at once (default: 1)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where to run (default: local)")
    parser.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster (default: one on this machine)")
    parser.add_argument("--no-report", action="store_true", help="only the records")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> int:
    """Run what was asked for, write the report, say what is missing."""
    from erda.benchmark.paper.plan import Changes, choose_tables
    from erda.benchmark.paper.running import run_paper
    from erda.errors import ErdaError, SettingsError, join_faults, said_once

    tables = choose_tables(options.tables)
    if options.list:
        print(*(f"{table.group:10} {table.name:12} {table.title}" for table in tables), sep="\n")
        return 0
    if options.jobs is not None and options.jobs < 1:
        raise SettingsError(f"--jobs: must be at least 1, got {options.jobs}.")
    changes = Changes(
        seeds=options.seeds,
        dataset=options.dataset,
        device=options.device,
        corpus=options.corpus,
        sets=tuple(options.sets),
    )
    try:
        done = run_paper(
            tables,
            out=options.out,
            changes=changes,
            n_processes=options.jobs,
            engine=options.engine,
            address=options.address,
        )
    except KeyboardInterrupt:
        print(f"\nStopped. What is finished is kept in {options.out}; the same command goes on.", file=sys.stderr)
        return 130
    for line in done.left_out:
        print(f"left out: {line}", file=sys.stderr)
    print(f"Runs done: {done.n_runs}; there already: {done.n_found}; failed: {len(done.faults)}. {options.out}")
    if (done.n_runs or done.n_found) and not options.no_report:
        _report(options.out)
    if done.faults:
        raise ErdaError(f"Runs that failed: {len(done.faults)}\n{join_faults(said_once(done.faults))}")
    return 0


def _report(out: Path) -> None:
    from erda.benchmark.report import write_report

    report = write_report(out)
    for fault in report.faults:
        print(f"erda: {fault}", file=sys.stderr)
    print(f"Report: {report.page or out / 'report'}")
