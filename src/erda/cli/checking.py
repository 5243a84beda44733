"""The parser of the command line, its commands, and the types of their arguments."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from erda.cli.printing import print_fault
from erda.errors import unknown_name

Commands = argparse._SubParsersAction  # the action that holds the subcommands


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the closest known name. Options may stand between the words of a list."""

    _is_mixing = False  # inside `parse_known_intermixed_args`, which calls `parse_known_args`

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        kind = "command" if isinstance(action, Commands) else (*action.option_strings, "word")[0]
        raise argparse.ArgumentError(None, unknown_name(kind, str(value), map(str, action.choices)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; a command reports its own unknown options, since it knows the valid ones."""
        if self._is_mixing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            found, rest = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False
        if rest:
            options = [word.partition("=")[0] for word in rest if word.startswith("-")]
            known = self._option_string_actions
            self.error(unknown_name("option", options[0], known) if options else f"One argument too many: '{rest[0]}'.")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Exit with the message and a pointer to the help."""
        stop = "" if message.endswith((".", "?")) else "."
        print_fault(f"{message}{stop} See: {self.prog} --help")
        self.exit(2)


def add_command(
    commands: Commands[argparse.ArgumentParser], name: str, handler: Callable[[argparse.Namespace], None] | None = None
) -> argparse.ArgumentParser:
    """Add a command with the texts of `help.toml`, or a group, which has no `handler`."""
    text, plain = help_texts()[name], argparse.RawDescriptionHelpFormatter
    brief, about, more = text.get("brief", text["about"]), text["about"], text["more"]
    word = name.rpartition(" ")[2]  # of a group: "corpus build" is `build` of `erda corpus`
    parser = commands.add_parser(word, help=brief, description=about, epilog=more, formatter_class=plain)
    parser.set_defaults(handler=handler)
    return parser


@cache
def help_texts() -> dict[str, dict[str, str]]:
    """Read `help.toml`: the texts of each command."""
    return tomllib.loads(Path(__file__).with_name("help.toml").read_text(encoding="utf-8"))


def named_path(text: str) -> Path:
    """Convert an argument to a path; reject an empty text, as from an unset shell variable."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name, got nothing.")
    return Path(text)


def positive(text: str) -> int:
    """Convert an argument to a count of at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}.")
    return int(text)
