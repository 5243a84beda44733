"""`erda report`: make tables, figures and a page from records."""

from __future__ import annotations

import argparse
from pathlib import Path

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_fault, print_line, print_tables

EXAMPLES = """examples:
  erda report runs/x
  erda report runs/x --no-figures > tables.txt
  erda report runs/x --reference cpl
"""


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = (
        "Print the tables of all records under a folder, and write them (Markdown, CSV), figures (PNG, SVG) "
        "and a page that shows it all (index.html, opens without a network) into DIR/report. Nothing is trained."
    )
    parser = add_command(commands, "report", about, EXAMPLES, brief="tables, figures and a page from records")
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="the --out folder of `erda run`, or a folder that contains several of them",
    )
    parser.add_argument("--no-figures", action="store_true", help="write the tables and the page without figures")
    against = "test every other line against this one: a label or a method (default: posterior, else erda)"
    parser.add_argument("--reference", default="", metavar="NAME", help=against)
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Print and write the report."""
    from erda.benchmark.paper.paper_tables import paper_layout
    from erda.benchmark.report.report_files import FOLDER, write_report

    report = write_report(
        options.directory, figures=not options.no_figures, layout=paper_layout, reference=options.reference
    )
    print_tables(report.tables)
    print_line(f"Files: {len(report.files)} in {options.directory / FOLDER}")
    print_line(f"Page:  {report.page}")
    for fault in (*report.faults, *report.notes):
        print_fault(fault)
