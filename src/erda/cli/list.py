"""`erda list`: list methods, encoders, datasets and presets."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from erda.cli.checking import Commands, add_command
from erda.cli.printing import print_line
from erda.errors import ErdaError, not_installed


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    about = "List methods, encoders, datasets or presets, with their settings."
    examples = "examples:\n  erda list methods\n  erda list presets"
    parser = add_command(commands, "list", about, examples, brief="list methods, encoders, datasets and presets")
    parser.add_argument("what", choices=sorted(LISTS), help="what to list")
    parser.set_defaults(handler=run)


def run(options: argparse.Namespace) -> None:
    """Print one list."""
    entries = list(LISTS[options.what]())
    width = max(len(name) for name, *_ in entries) + 2
    for name, about, settings in entries:
        print_line(f"{name:<{width}}{about}")
        for setting in settings:
            print_line(f"    {setting}")


Entry = tuple[str, str, list[str]]  # name, a sentence, settings


def _methods() -> Iterator[Entry]:
    from erda.methods import METHODS, find_method
    from erda.settings.runs import default_settings

    for name in METHODS:
        try:
            method = find_method(name)
        except ErdaError as fault:  # a broken plug-in package
            yield name, f"({fault})", []
        except ModuleNotFoundError as fault:
            yield name, f"({not_installed([fault.name or ''])})", []
        else:
            settings = [f"{setting} = {_toml(value)}" for setting, value in default_settings(method).items()]
            yield name, next(iter((method.__doc__ or "").strip().splitlines()), ""), settings


def _encoders() -> Iterator[Entry]:
    from erda.encoders import ENCODERS
    from erda.fields import flat_values

    for name, entry in ENCODERS.items():
        settings = flat_values(entry.settings())
        yield name, entry.about, [f"encoder.{setting} = {_toml(value)}" for setting, value in settings.items()]


def _datasets() -> Iterator[Entry]:
    from erda.data.catalogue import DATASETS

    for name, entry in DATASETS.items():
        yield name, entry.about, []


def _presets() -> Iterator[Entry]:
    from erda.settings.load import preset_names, read_preset

    for name in preset_names():
        yield name, str(read_preset(name)["description"]), []


def _toml(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


LISTS: dict[str, Callable[[], Iterator[Entry]]] = {
    "methods": _methods,
    "encoders": _encoders,
    "datasets": _datasets,
    "presets": _presets,
}
