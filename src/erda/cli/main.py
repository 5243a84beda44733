"""The command `erda`: its subcommands and exit statuses.

Exit status: 0 success, 2 a fault the user can fix (one message on stderr, no traceback), 130 interrupted by Ctrl-C.
`ERDA_DEBUG=1` shows the traceback of a fault.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module

from erda import __version__
from erda.cli.checking import Parser
from erda.cli.printing import PrintableOutput, print_fault, print_line, print_note
from erda.errors import EXTRAS, ErdaError, not_installed

# Title -> module of erda.cli -> its commands. Only the module of the command that runs is imported.
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "first steps": {"demo_commands": ("demo",)},
    "an extractor of your own": {
        "teach_commands": ("teach", "relations", "forget", "edit"),
        "review_commands": ("review",),
        "predict_commands": ("predict", "extract", "evaluate", "tune"),
        "version_commands": ("versions", "export"),
        "serve_commands": ("serve", "mcp"),
    },
    "experiments": {"run_commands": ("run", "paper", "report")},
    "data and unlabelled text": {"data_commands": ("list", "data"), "corpus_commands": ("corpus",)},
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


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of the whole command line, or of one known command alone."""
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
    known = any(command in names for modules in GROUPS.values() for names in modules.values())
    for title, modules in GROUPS.items():
        lines.append(f"{title}:")
        for module, names in modules.items():
            if command in names or not known:
                n_before = len(subparsers._choices_actions)
                import_module(f"erda.cli.{module}").add_parser(subparsers)
                lines += [f"  {added.dest:<9} {added.help}" for added in subparsers._choices_actions[n_before:]]
        lines.append("")
    parser.epilog = "\n".join([*lines, EXAMPLES])
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; Ctrl-C prints `options.kept`, which says what is kept."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (no other file may take its descriptor)
    if sys.stdout is None:
        print_fault("Standard output is closed; redirect it to a file or to /dev/null.")
        return FAULT
    parser = build_parser(words[0] if words else None)
    if not words:
        parser.print_help(sys.stderr)
        return FAULT
    options = parser.parse_args(words)
    options.arguments = words  # recorded by some commands
    warnings.showwarning = lambda message, *_, **__: print_note(str(message))
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        with redirect_stdout(PrintableOutput(sys.stdout)):
            options.handler(options)
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        print_line(file=sys.stderr)
        print_line(f"Stopped. {getattr(options, 'kept', '')}".rstrip(), file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _drop_output()
        return 0
    except (ErdaError, OSError) as fault:
        return _refuse(str(fault))
    except ModuleNotFoundError as fault:
        if fault.name not in EXTRAS:
            raise
        return _refuse(not_installed([fault.name]))


def _refuse(fault: str) -> int:
    """Print a caught fault."""
    if os.environ.get("ERDA_DEBUG"):
        raise  # noqa: PLE0704 (re-raises the caught error)
    print_fault(fault)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk: the rest of the buffer would fail again when Python exits
        _drop_output()
    return FAULT


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
