"""Settings as text: the flags of a run and `--set`. `erda.settings.load` converts text to values."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.errors import SettingsError, join_faults, unknown_name

if TYPE_CHECKING:
    from erda.fields import S
    from erda.settings.load import SettingValue
    from erda.settings.runs import RunSettings

FLAGS = {  # name in a settings file -> (flag, metavar, help)
    "dataset": ("--dataset", "NAME", "a name of `erda list datasets`, or your own file or folder (default: atlas)"),
    "shots": ("--shots", "K", "examples per relation after the first task (default: the dataset's own)"),
    "methods": (
        "--method",
        "NAMES",
        "names of `erda list methods`, module:Class or file.py:Class (default: posterior)",
    ),
    "encoder": ("--encoder", "NAME", "one of `erda list encoders`, a model folder or a hub name (default: minilm)"),
    "order_family": ("--order-family", "NAME", "published task orders and their seeds: erda or sckd (default: erda)"),
    "seeds": ("--seeds", "N,N", "streams to run (default: all six of the order family)"),
    "device": ("--device", "NAME", "cpu, cuda or cuda:N (default: cpu)"),
    "corpus": ("--corpus", "DIR", "corpus with an index (`erda corpus`): where ERDA finds extra examples"),
    "allow_seen": ("--allow-seen", "", "run an encoder that was trained on relations of the stream; marks the records"),
    "evaluate_on": ("--evaluate-on", "POOL", "test or validation; choose settings on validation (default: test)"),
}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that `load_settings` reads."""
    for name, (flag, metavar, text) in FLAGS.items():
        kind: dict[str, Any] = {"metavar": metavar} if metavar else {"action": "store_const", "const": True}
        parser.add_argument(flag, dest=name, help=text, **kind)
    parser.add_argument("--preset", metavar="NAME", help="built-in settings: `erda list presets`")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file (docs/benchmark.md)")
    add_sets(parser, "a setting of every method that has it; METHOD.NAME for one method, encoder.NAME for the encoder")


def add_sets(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--set`, which may be repeated."""
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="NAME=VALUE", help=text)


def load_settings(options: argparse.Namespace) -> RunSettings:
    """Validate the options of `add_settings`; report all faults at once."""
    from erda.settings.load import layers_of, settings_from

    layer, faults = _layer(options)
    return settings_from([*layers_of(options.preset, options.config), layer], faults=faults)


def read_given(options: argparse.Namespace) -> dict[str, SettingValue]:
    """The layer of `--set` and the flags, not yet validated."""
    layer, faults = _layer(options)
    if faults:
        raise SettingsError(join_faults(faults))
    return layer


def _layer(options: argparse.Namespace) -> tuple[dict[str, SettingValue], list[str]]:
    """The values of `--set`, and those of the flags, which win; and faults."""
    from erda.settings.load import SettingValue

    layer, faults = _set_values(options.sets)
    for name, (flag, *_) in FLAGS.items():
        if (value := getattr(options, name, None)) is not None:
            layer[name] = SettingValue(value, flag, is_text=isinstance(value, str))
    return layer, faults


def _set_values(sets: Iterable[str]) -> tuple[dict[str, SettingValue], list[str]]:
    from erda.settings.load import SettingValue, tidy_name

    values, faults = dict[str, SettingValue](), list[str]()
    for text in sets:
        name, sign, value = (part.strip() for part in text.partition("="))
        if sign and name:
            values[tidy_name(name)] = SettingValue(value, f"--set {name}", is_text=True)
        else:
            faults.append(f"--set {text}: expected name=value.")
    return values, faults


def settings_of(model: type[S], sets: Iterable[str], flags: Mapping[str, Any], *, what: str) -> S:
    """Validate `--set` and flags, which win, as one settings model; report all faults at once."""
    from erda.fields import flat_kinds
    from erda.settings.load import SettingValue, validated

    values, faults = _set_values(sets)
    values |= {name: SettingValue(value, name) for name, value in flags.items()}
    kinds = flat_kinds(model)
    faults += [f"{values[name].origin}: {unknown_name(what, name, kinds)}" for name in values if name not in kinds]
    settings = validated(model, values, faults)
    if faults:
        raise SettingsError(join_faults(faults))
    return settings
