"""Write docs/cli.md from the parsers and the type stub of `erda` from its public names: `make docs`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import erda
from erda.cli.main import build_parser

HEADER = "# The command line\n\nGenerated from the parsers by `make docs`; do not edit.\n"


STUB = Path(erda.__file__).with_suffix(".pyi")


def render() -> str:
    """The whole page."""
    return HEADER + "".join(_sections(build_parser()))


def render_stub() -> str:
    """The type stub of the package: every public name with its module."""
    lines = [f"from {home} import {name} as {name}" for home, names in erda.PUBLIC.items() for name in names]
    return "\n".join([*lines, "", "PUBLIC: dict[str, tuple[str, ...]]", "__version__: str", ""])


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    arguments = [action for action in parser._actions if action not in groups and action.help != argparse.SUPPRESS]
    lines = ["", f"## {parser.prog}", "", parser.description or "", ""]
    own = [action for action in arguments if not isinstance(action, argparse._HelpAction)]
    if own:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| {_signature(action)} | {_meaning(action)} |" for action in own]
        lines.append("")
    if parser.epilog:
        lines += ["```", parser.epilog.strip(), "```", ""]
    yield "\n".join(lines)
    for group in groups:
        for child in group.choices.values():
            yield from _sections(child)


def _signature(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else (action.dest.upper()))
    if action.choices is not None and action.metavar is None:
        value = " or ".join(map(str, action.choices))
    text = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"`{text}`"
    return f"`{', '.join(action.option_strings)}{' ' + text if text and action.nargs != 0 else ''}`"


def _meaning(action: argparse.Action) -> str:
    return " ".join((action.help or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(render(), encoding="utf-8")
    STUB.write_text(render_stub(), encoding="utf-8")
