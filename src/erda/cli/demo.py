"""`erda demo`: methods and the extractor on the embedded dataset, in a few minutes."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_line, print_tables
from erda.errors import ErdaError, join_faults


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = (
        "Run SeqRun (forgets), ERDA (the paper) and Joint (keeps all data) on the embedded dataset, "
        "then ERDA with extra examples from unlabelled text and Posterior (a frozen, pretrained transformer), "
        "and show how much each forgets; then teach an extractor five relations. "
        "Takes at most three minutes on two cores; nothing is downloaded."
    )
    examples = "examples:\n  erda demo\n  erda demo --out /tmp/demo --seeds 100"
    brief = "methods and an extractor on the embedded dataset"
    parser = add_command(commands, "demo", about, examples, brief=brief)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="default: runs/demo")
    parser.add_argument("--seeds", metavar="N,N", help="streams to run (default: those of preset 'demo')")
    parser.add_argument(
        "--sentences",
        type=int,
        default=3000,
        metavar="N",
        help="unlabelled sentences to search for extra examples (default: all 3000)",
    )
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Run the demo and print its results."""
    from erda.app.demo import demonstrate
    from erda.benchmark.method_demo import run_demo
    from erda.cli.settings_options import seeds_of

    options.kept = f"Finished runs are kept in {options.out}; `erda demo` resumes there."
    show = partial(print_line, flush=True)
    demo = run_demo(options.out, seeds=seeds_of(options), n_sentences=options.sentences, show=show)
    print_line()
    print_tables(demo.tables)
    if demo.page:
        print_line(f"Page:    {demo.page}")
    for curve in demo.curves:
        print_line(f"Curve:   {curve}")
    print_line(f"Tables:  {demo.folder}")
    print_line(f"Records: {options.out}")
    print_line(flush=True)
    program = "erda" if shutil.which("erda") else shlex.quote(sys.argv[0])  # make demo does not activate .venv
    demonstrate(options.out / "extractor", show=show, program=program)
    if demo.faults:
        raise ErdaError(join_faults(demo.faults))
