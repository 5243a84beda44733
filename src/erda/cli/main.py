"""The command `erda`: its subcommands, and what becomes of faults.

Exit status: 0 all went well, 2 a fault that the user can mend (its message on stderr, no traceback), 130 stopped by
Ctrl-C. `ERDA_DEBUG=1` shows the traceback of a fault.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from erda import __version__
from erda.cli import corpus, data, demo, list, paper, report, run, search
from erda.errors import ErdaError

COMMANDS = (demo, run, paper, search, report, list, data, corpus)
FAULT = 2
STOPPED = 130


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; nothing heavy is imported for it."""
    parser = argparse.ArgumentParser(
        prog="erda",
        description="Continual few-shot relation learning: learn new relations from a handful of examples "
        "without forgetting the old ones.",
        epilog="examples:\n  erda demo\n  erda run --dataset fewrel --shots 5 --method erda,seqrun --out runs/x\n"
        "  erda report runs/x\n\n`erda COMMAND --help` says more about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"erda {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    options = build_parser().parse_args(arguments)
    options.arguments = [*(sys.argv[1:] if arguments is None else arguments)]  # some write it down
    try:
        status = int(options.handler(options) or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # whoever read the output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ErdaError, OSError) as fault:
        if os.environ.get("ERDA_DEBUG"):
            raise
        print(f"erda: {fault}", file=sys.stderr)
        return FAULT
