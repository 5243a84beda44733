"""Settings as text: the flags of a run and `--set`, the only place where a value is written as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.cli.checking import refuse

if TYPE_CHECKING:
    from erda.settings.load import Assignment
    from erda.settings.runs import RunSettings

FLAGS = {  # name in a settings file -> (flag, metavar, help)
    "dataset": (
        "--dataset",
        "NAME",
        "a name of `erda list datasets`, or a file or folder of your own (default: atlas)",
    ),
    "shots": ("--shots", "K", "examples a relation after the first task (default: the dataset's own)"),
    "methods": ("--method", "NAMES", "one or more of `erda list methods`, separated by commas (default: posterior)"),
    "encoder": ("--encoder", "NAME", "one of `erda list encoders`, a model folder or a hub name (default: minilm)"),
    "order_family": ("--order-family", "NAME", "published task orders and their seeds: erda or sckd (default: erda)"),
    "seeds": ("--seeds", "N,N", "streams to run (default: all six of the order family)"),
    "device": ("--device", "NAME", "cpu, cuda or cuda:N (default: cpu)"),
    "corpus": ("--corpus", "DIR", "corpus with an index (`erda corpus`): where ERDA finds extra examples"),
    "evaluate_on": ("--evaluate-on", "POOL", "test or validation; choose settings on validation (default: test)"),
}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is run: those of `load_settings`."""
    for name, (flag, metavar, text) in FLAGS.items():
        parser.add_argument(flag, dest=name, metavar=metavar, help=text)
    parser.add_argument("--preset", metavar="NAME", help="settings that come with erda: `erda list presets`")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file (docs/benchmark.md)")
    add_sets(parser, "a setting of every method that has it; METHOD.NAME for one method, encoder.NAME for the encoder")


def add_sets(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--set`, which may be given several times."""
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="NAME=VALUE", help=text)


def load_settings(options: argparse.Namespace, *more_sets: str) -> RunSettings:
    """What the options of `add_settings` ask for, checked: every fault at once."""
    from erda.settings.load import layers_of, settings_from

    faults: list[str] = []
    given = [*read_sets([*options.sets, *more_sets], faults), *read_flags(options)]
    return settings_from([*layers_of(options.preset, options.config), given], faults=faults)


def read_given(options: argparse.Namespace) -> list[Assignment]:
    """What `--set` and the flags gave."""
    faults: list[str] = []
    given = [*read_sets(options.sets, faults), *read_flags(options)]
    refuse(faults)
    return given


def read_flags(options: argparse.Namespace) -> list[Assignment]:
    """The flags that were given."""
    from erda.fields import value_of_text
    from erda.settings.load import Assignment

    texts = {name: getattr(options, name, None) for name in FLAGS}
    return [
        Assignment(name, text, FLAGS[name][0], read=value_of_text) for name, text in texts.items() if text is not None
    ]


def seeds_of(options: argparse.Namespace) -> tuple[int, ...] | None:
    """The seeds that were given, by a command that has no other flag of a run."""
    from erda.settings.runs import RUN_KINDS

    found: dict[str, Any] = {}
    faults: list[str] = []
    for given in read_flags(options):
        if given.name == "seeds":
            given.put(found, RUN_KINDS["seeds"], faults)
    refuse(faults)
    return found.get("seeds")


def read_sets(sets: Iterable[str], faults: list[str]) -> list[Assignment]:
    """What `--set NAME=VALUE` gave; what is not of that form goes to the faults."""
    from erda.fields import value_of_text
    from erda.settings.load import Assignment, tidy_name

    found = []
    for text in sets:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            faults.append(f"--set {text}: expected name=value.")
        else:
            found.append(Assignment(tidy_name(name), value, f"--set {name}", read=value_of_text))
    return found


def values_of(sets: Iterable[str], kinds: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """The values that `--set` gave settings of these kinds, or every fault at once; `what` is what they are called."""
    from erda.errors import unknown_name

    faults: list[str] = []
    values: dict[str, Any] = {}
    for given in read_sets(sets, faults):
        if given.name in kinds:
            given.put(values, kinds[given.name], faults)
        else:
            faults.append(f"{given.origin}: {unknown_name(what, given.name, kinds)}")
    refuse(faults)
    return values
