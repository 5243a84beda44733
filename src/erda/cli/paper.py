"""`erda paper`: reproduce the tables and figures of the paper."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from erda.cli.checking import Commands, add_command, below_one, refuse
from erda.cli.printing import print_fault, print_line
from erda.cli.settings_options import add_sets, read_given

EXAMPLES = """\
The same command does not repeat finished runs; an interrupted run starts again. Rows that learn from extra examples
need a corpus with an index (docs/corpus.md) and are skipped without one. The runs in a folder share their settings:
use another --out for other settings.

examples:
  erda paper --list
  erda paper main --jobs 2
  erda paper --corpus corpora/wiki --jobs 2
  erda paper main ablation lambda --corpus corpora/wiki
  erda paper bert --device cuda --corpus corpora/wiki
  erda paper main --dataset atlas --seeds 100
  erda paper main --seeds 100 --set n_tasks=2 --out runs/smoke
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = "Run the paper's tables and figures, and write the report."
    parser = add_command(commands, "paper", about, EXAMPLES, brief="run the tables and figures of the paper")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="which tables (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="list the tables and stop")
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="default: runs/paper")
    parser.add_argument("--corpus", metavar="DIR", help="a corpus with an index, for the augmented rows")
    parser.add_argument("--seeds", metavar="LIST", help="fewer or other seeds, e.g. 100,110 (default: six orders)")
    parser.add_argument("--dataset", metavar="NAME", help="another dataset for all tables, e.g. atlas")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cpu)")
    add_sets(parser, "a setting of all streams or of the cache, unless a chosen table sets it itself")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Run the selected tables, write the report, and list missing runs."""
    from erda.benchmark.paper.paper_tables import choose_tables, paper_layout
    from erda.benchmark.paper.run_paper import run_paper
    from erda.benchmark.report.report_files import write_report
    from erda.errors import ErdaError, join_faults, merge_faults

    refuse(below_one(options, "jobs"))
    tables = choose_tables(options.tables)
    if options.list:
        for table in tables:
            print_line(f"{table.group:11} {table.name:15} {table.title}")
        return
    options.kept = f"Finished runs are kept in {options.out}; the same command continues."
    done = run_paper(tables, out=options.out, changes=read_given(options), n_processes=options.jobs)
    for line in done.left_out:
        print_line(f"skipped (see above): {line.splitlines()[0].partition(';')[0]}", file=sys.stderr)
    print_line(f"Runs done: {done.n_runs}; already there: {done.n_found}; faults: {len(done.faults)}. {options.out}")
    if done.n_runs or done.n_found:
        report = write_report(options.out, layout=paper_layout)
        for fault in report.faults:
            print_fault(fault)
        print_line(f"Report: {report.page}")
    if done.faults:
        raise ErdaError(f"What failed ({len(done.faults)}):\n{join_faults(merge_faults(done.faults))}")
