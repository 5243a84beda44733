"""What several commands share: how they are added, and checks of options.

Each check gives its faults, so that a command can say all at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from erda.errors import SettingsError, join_faults, printable, unknown_name

Commands = argparse._SubParsersAction  # of ArgumentParser, where commands are added


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, with the nearest name that it knows."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "command" if isinstance(action, Commands) else (*action.option_strings, "word")[0]
            raise argparse.ArgumentError(None, unknown_name(kind, str(value), map(str, action.choices)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ever, but a command refuses by itself what it does not know: it knows its own options."""
        found, rest = super().parse_known_args(args, namespace)
        if rest and self._subparsers is None:
            options = [word.partition("=")[0] for word in rest if word.startswith("-")]
            known = self._option_string_actions
            self.error(unknown_name("option", options[0], known) if options else f"One word too many: '{rest[0]}'.")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """End with the line, and where to read more."""
        stop = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"erda: {printable(message)}{stop} See: {self.prog} --help\n")


def add_command(
    commands: Commands[argparse.ArgumentParser], name: str, about: str, examples: str, *, brief: str = ""
) -> argparse.ArgumentParser:
    """Add a command that says what it does (`brief`, where commands are listed) and ends its help with examples."""
    plain = argparse.RawDescriptionHelpFormatter
    return commands.add_parser(name, help=brief or about, description=about, epilog=examples, formatter_class=plain)


def named_path(text: str) -> Path:
    """A path that somebody named: an empty text, as of a variable that is not set, is not the folder one is in."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name, got nothing.")
    return Path(text)


def below_one(options: argparse.Namespace, *names: str) -> list[str]:
    """Faults of options that count something and must be at least 1 where they are given."""
    given = {name: getattr(options, name) for name in names}
    return [
        f"--{name.replace('_', '-')}: must be at least 1, got {value}."
        for name, value in given.items()
        if value is not None and value < 1
    ]


def without_effect(options: argparse.Namespace, *, local: Sequence[str], ray: Sequence[str]) -> list[str]:
    """Faults of options that only one `--engine` has, given with the other."""
    other, names = ("local", local) if options.engine == "ray" else ("ray", ray)
    return [f"--{name}: only with --engine {other}." for name in names if getattr(options, name) is not None]


def refuse(faults: Sequence[str]) -> None:
    """End the command where there are faults."""
    if faults:
        raise SettingsError(join_faults(faults))
