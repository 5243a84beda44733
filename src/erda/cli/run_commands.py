"""`erda run | paper | report`: run methods on streams, reproduce the paper, and make tables and figures of records."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.checking import Commands, add_command, positive
from erda.cli.printing import print_fault, print_line, print_tables
from erda.cli.settings_options import add_sets, add_settings, load_settings, read_given
from erda.errors import ErdaError, join_faults, merge_faults


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    run = add_command(commands, "run", run_methods)
    add_settings(run)
    run.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the records")
    run.add_argument("--jobs", type=positive, default=1, metavar="N", help="runs at once (default: 1)")
    run.add_argument("--keep-methods", action="store_true", help="save learned methods in OUT/METHOD/SEED/method")

    paper = add_command(commands, "paper", reproduce_paper)
    paper.add_argument("tables", nargs="*", metavar="TABLE", help="which tables (default: all; see --list)")
    paper.add_argument("--list", action="store_true", help="list the tables and stop")
    paper.add_argument("--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="default: runs/paper")
    paper.add_argument("--corpus", metavar="DIR", help="a corpus with an index, for the augmented rows")
    paper.add_argument("--seeds", metavar="LIST", help="fewer or other seeds, e.g. 100,110 (default: six orders)")
    paper.add_argument("--dataset", metavar="NAME", help="another dataset for all tables, e.g. atlas")
    paper.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cpu)")
    add_sets(paper, "a setting of all streams or of the cache, unless a chosen table sets it itself")
    paper.add_argument("--jobs", type=positive, default=1, metavar="N", help="runs at once (default: 1)")

    report = add_command(commands, "report", report_records)
    report.add_argument("directory", type=Path, metavar="DIR", help="the --out of `erda run`, or a folder of several")
    report.add_argument("--no-figures", action="store_true", help="write the tables and the page without figures")
    against = "test every other line against this one: a label or a method (default: posterior, else erda)"
    report.add_argument("--reference", default="", metavar="NAME", help=against)


def run_methods(options: argparse.Namespace) -> None:
    """Run, and print the result tables."""
    from erda.benchmark.experiments import group_records
    from erda.benchmark.report.result_tables import accuracy_table, final_table
    from erda.benchmark.run.planned_runs import run_experiment

    settings = load_settings(options)
    options.kept = f"Finished runs are kept in {options.out}; the same command continues with the others."
    finished = run_experiment(settings, out=options.out, n_processes=options.jobs, keep_methods=options.keep_methods)
    for experiment in group_records(finished.records):
        tables = [accuracy_table(experiment, protocol) for protocol in experiment.protocols]
        print_tables([*tables, final_table(experiment)])
    notes = [note for record in finished.records for note in record.manifest.get("notes", ())]
    for note in {note.partition(":")[0]: note for note in reversed(notes)}.values():
        print_line(f"Note: {note}.")
    if finished.records:
        print_line(f"Runs done: {finished.n_new}; already there: {finished.n_found}. Records: {options.out}")
        print_line(f"Tables and figures: erda report {options.out}")
    if finished.faults:
        raise ErdaError(f"Runs that failed: {len(finished.faults)}\n{join_faults(merge_faults(finished.faults))}")


def reproduce_paper(options: argparse.Namespace) -> None:
    """Run the selected tables, write the report, and list missing runs."""
    from erda.benchmark.paper.paper_plan import run_paper
    from erda.benchmark.paper.paper_tables import choose_tables, paper_layout
    from erda.benchmark.report.report_files import write_report

    tables = choose_tables(options.tables)
    if options.list:
        for table in tables:
            print_line(f"{table.group:11} {table.name:15} {table.title}")
        return
    options.kept = f"Finished runs are kept in {options.out}; the same command continues."
    done = run_paper(tables, out=options.out, changes=read_given(options), n_processes=options.jobs)
    print_line(f"Runs done: {done.n_new}; already there: {done.n_found}; faults: {len(done.faults)}. {options.out}")
    if done.records:
        report = write_report(options.out, layout=paper_layout)
        for fault in report.faults:
            print_fault(fault)
        print_line(f"Report: {report.page}")
    if done.faults:
        raise ErdaError(f"What failed ({len(done.faults)}):\n{join_faults(merge_faults(done.faults))}")


def report_records(options: argparse.Namespace) -> None:
    """Print and write the report."""
    from erda.benchmark.paper.paper_tables import paper_layout
    from erda.benchmark.report.report_files import FOLDER, write_report

    report = write_report(
        options.directory, figures=not options.no_figures, layout=paper_layout, reference=options.reference
    )
    print_tables(report.tables)
    print_line(f"Files: {len(report.files)} in {options.directory / FOLDER}")
    if report.page:
        print_line(f"Page:  {report.page}")
    for fault in (*report.faults, *report.notes):
        print_fault(fault)
