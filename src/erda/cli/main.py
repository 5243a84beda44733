"""The command `erda`: its subcommands, and what becomes of faults.

Exit status: 0 all went well, 2 a fault that the user can mend (its message on stderr, no traceback), 130 stopped by
Ctrl-C. `ERDA_DEBUG=1` shows the traceback of a fault.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from erda import __version__
from erda.cli import corpus, data, demo, export, list, paper, predict, report, run, search, teach
from erda.cli.checking import Parser
from erda.cli.printing import PrintableOutput
from erda.errors import EXTRAS, ErdaError, not_installed, printable

GROUPS = {
    "first steps": (demo, list),
    "an extractor of your own": (teach, predict, export),
    "experiments": (run, paper, search, report),
    "data and unlabelled text": (data, corpus),
}
EXAMPLES = """\
`erda COMMAND --help` says more about a command.

examples:
  erda demo
  erda teach "founded by" "[[Tesla]] was started by {{Martin Eberhard}}."
  erda run --dataset fewrel --shots 5 --method posterior,erda --out runs/x
  erda report runs/x
"""
FAULT = 2
STOPPED = 130


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; nothing heavy is imported for it."""
    parser = Parser(
        prog="erda",
        usage="erda [-h] [--version] COMMAND ...",
        description="Continual few-shot relation learning: learn new relations from a handful of examples "
        "without forgetting the old ones.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"erda {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="erda", help=argparse.SUPPRESS
    )
    lines = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        for command in commands:
            n_before = len(subparsers._choices_actions)
            command.add_parser(subparsers)
            lines += [f"  {added.dest:<9} {added.help}" for added in subparsers._choices_actions[n_before:]]
        lines.append("")
    parser.epilog = "\n".join([*lines, EXAMPLES])
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status; a command that can be stopped says in `options.kept` what stays."""
    parser = build_parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return FAULT
    options = parser.parse_args(arguments)
    options.arguments = [*(sys.argv[1:] if arguments is None else arguments)]  # some write it down
    try:
        with redirect_stdout(PrintableOutput(sys.stdout)):
            status = int(options.handler(options) or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"\nStopped. {getattr(options, 'kept', '')}".rstrip(), file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # whoever read the output (head, less) has seen enough
        _drop_output()
        return 0
    except (ErdaError, OSError) as fault:
        return _refuse(str(fault))
    except ModuleNotFoundError as fault:
        if fault.name not in EXTRAS:
            raise
        return _refuse(not_installed([fault.name]))


def _refuse(fault: str) -> int:
    """Say what is wrong; called where a fault was caught."""
    if os.environ.get("ERDA_DEBUG"):
        raise  # noqa: PLE0704 (what was caught)
    print(f"erda: {printable(fault)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk: what is left would fail again at the end of Python
        _drop_output()
    return FAULT


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
