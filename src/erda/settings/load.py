"""Merge settings from presets, files and callers as plain dictionaries, then validate the result once.

Later layers win: defaults, a preset, a settings file, the caller or the command line. Within a layer, a setting of one
method (`erda.memory_size`) wins over a setting of all methods (`memory_size`).

A settings file is TOML. Its top level holds the names of `RUN_KINDS`; the table `settings` holds everything else:

    dataset = "fewrel"
    shots = 5
    methods = ["erda", "seqrun"]

    [settings]
    batch_size = 5              # every method that has it
    erda.memory_size = 1        # one method
    encoder.hidden_size = 100   # the encoder
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from erda.data.streams import StreamSettings
from erda.errors import ErdaError, SettingsError, join_faults, one_line, unknown_name
from erda.fields import S, Settings, flat_kinds, flat_values, try_settings, value_of_text
from erda.files import read_bytes, user_path
from erda.registry import plugin_paths
from erda.settings.runs import RUN_KINDS, RunOptions, RunSettings, known_settings

PRESETS = Path(__file__).parent / "presets"
ENCODER = "encoder"


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A value and its origin, as messages name it: `--set erda.batch_size`, `mine.toml: shots`."""

    value: Any
    origin: str
    in_file: bool = False  # a file may also hold settings of methods that the run does not have
    is_text: bool = False  # the command line


Layer = Mapping[str, SettingValue]  # `shots`, `batch_size`, `erda.memory_size`, `encoder.hidden_size`


def run_settings(
    *, preset: str | None = None, file: Path | None = None, settings: Mapping[str, Any] | None = None, **values: Any
) -> RunSettings:
    """Build run settings from a preset or a TOML file, overridden by keyword arguments.

    >>> run_settings(preset="demo", methods="erda", seeds=100, settings={"erda.memory_size": 2}).seeds
    (100,)
    """
    return settings_from([*layers_of(preset, file), given_values({**values, **(settings or {})})])


# -- layers ------------------------------------------------------------------------------------------------------------


def given_values(values: Mapping[str, Any]) -> dict[str, SettingValue]:
    """Build a layer from keyword arguments; None means unset."""
    return {tidy_name(name): SettingValue(value, name) for name, value in values.items() if value is not None}


def layers_of(preset: str | None, file: Path | None = None) -> list[Layer]:
    """The layers of a preset and a file, in this order."""
    found = [_layer_of_toml(read_preset(preset), f"preset '{preset}'")] if preset else []
    return [*found, _layer_of_toml(_read_toml(file), str(file))] if file else found


def tidy_name(name: str) -> str:
    """Normalise a setting name to underscores; a method name before a dot keeps its hyphens."""
    owner, dot, setting = name.strip().rpartition(".")
    return f"{owner}{dot}{setting.replace('-', '_')}"


def preset_names() -> list[str]:
    """Names of all presets, those of installed packages included."""
    return sorted(_preset_files())


def _preset_files() -> dict[str, Path]:
    """Find presets: name -> file. An entry point of the group `erda.presets` names a package that holds TOML files."""
    folders = []
    for name, package in plugin_paths("erda.presets").items():
        try:
            found = find_spec(package)
        except ImportError as fault:
            raise SettingsError(f"'{name}' of erda.presets: '{package}' cannot be imported ({fault}).") from None
        folders += [Path(folder) for folder in (found and found.submodule_search_locations) or ()]
    return {path.stem: path for folder in (*folders, PRESETS) for path in folder.glob("*.toml")}


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset, merged over the preset named by its `like`."""
    files = _preset_files()
    if name not in files:
        raise SettingsError(unknown_name("preset", name, files))
    own = _read_toml(files[name])
    return _merged_tables(read_preset(own.pop("like")), own) if "like" in own else own


def _merged_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two TOML tables recursively; `above` wins."""
    inner = {name: _merged_tables(below.get(name, {}), one) for name, one in above.items() if isinstance(one, dict)}
    return {**below, **above, **inner}


def _read_toml(path: Path) -> dict[str, Any]:
    content = read_bytes(path, error=SettingsError)
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}.") from error
    except (ValueError, RecursionError):
        raise SettingsError(f"{path}: holds a number that is too long, or is nested too deeply.") from None


def _layer_of_toml(toml: Mapping[str, Any], origin: str) -> Layer:
    flat = {name: value for name, value in toml.items() if name not in ("description", "settings")}
    settings = toml.get("settings", {})
    if not isinstance(settings, dict):
        raise SettingsError(f"{origin}: 'settings' must be a table, [settings].")
    for name, value in settings.items():
        flat |= {f"{name}.{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return {tidy_name(name): SettingValue(value, f"{origin}: {name}", in_file=True) for name, value in flat.items()}


def merge_layers(layers: Iterable[Layer]) -> dict[str, SettingValue]:
    """Merge layers; a later setting of all methods also replaces an earlier one of a single method."""
    result: dict[str, SettingValue] = {}
    for layer in layers:
        kept = (name for name in result if name.startswith(f"{ENCODER}.") or name.rpartition(".")[2] not in layer)
        result = {**{name: result[name] for name in kept}, **layer}
    return result


# -- validation --------------------------------------------------------------------------------------------------------


def settings_from(layers: Iterable[Layer], *, faults: Iterable[str] = ()) -> RunSettings:
    """Merge layers and validate the result. All faults are reported at once, after those of reading the layers."""
    values, found = merge_layers(layers), list(faults)
    options = validated(RunOptions, values, found)
    stream = flat_values(validated(StreamSettings, values, found))
    completed, models = _completed(options, found), _models(options, found)
    encoder = flat_values(validated(models[ENCODER], values, found, owners=(ENCODER,)))
    methods = [name for name in models if name != ENCODER]
    own = {name: flat_values(validated(models[name], values, found, owners=("", name))) for name in methods}
    for name, one in values.items():
        if name not in RUN_KINDS and (fault := _name_fault(name, models, in_file=one.in_file)):
            found.append(f"{one.origin}: {fault}")
    if found:
        raise SettingsError(join_faults(list(dict.fromkeys(found))))
    return RunSettings(
        **{**completed, "methods": methods},
        encoder_settings={name: value for name, value in encoder.items() if f"{ENCODER}.{name}" in values},
        method_settings=own,
        stream_settings={name: value for name, value in stream.items() if name in values},
    )


def validated(model: type[S], values: Layer, found: list[str], *, owners: Iterable[str] = ("",)) -> S:
    """Validate the settings of one part; faults are added to `found`, and faulty settings keep the default.

    The names of the settings in `values` start with one of `owners`; the last one wins.
    """
    kinds = flat_kinds(model)
    keys = [(name, f"{owner}.{name}" if owner else name) for owner in owners for name in kinds]
    given = {name: values[key] for name, key in keys if key in values}
    flat = {name: value_of_text(kinds[name], one.value) if one.is_text else one.value for name, one in given.items()}
    settings, faults = try_settings(model, flat)
    whose = [*owners][-1]
    while settings is None:
        found += [f"{given[name].origin if name in given else whose}: {said}" for name, said in faults]
        right = {name: value for name, value in flat.items() if name not in dict(faults)}
        flat = right if len(right) < len(flat) else {}
        settings, faults = try_settings(model, flat)
    return settings


def _completed(options: RunOptions, found: list[str]) -> dict[str, Any]:
    """The options with default shots and seeds filled in; check names and folders."""
    from erda.data.catalogue import default_seeds
    from erda.encoders import check_device

    values: dict[str, Any] = {}
    for check in (
        lambda: values.update(shots=_default_shots(options.dataset)),
        lambda: values.update(seeds=default_seeds(options.order_family)),
        lambda: check_device(options.device),
    ):
        try:
            check()
        except ErdaError as error:
            found.append(str(error))
    if options.corpus and not user_path(options.corpus).is_dir():
        make = "make one with `erda corpus build` and `erda corpus index`"
        found.append(f"corpus: {one_line(options.corpus)} is not a folder; {make}.")
    for name, listed in (("methods", options.methods), ("seeds", options.seeds)):
        if twice := sorted({str(one) for one in listed if listed.count(one) > 1}):
            found.append(f"{name}: {', '.join(twice)} given twice.")
    return {**values, **{name: value for name, value in flat_values(options).items() if value not in (None, ())}}


def _default_shots(dataset: str) -> int:
    """The shots of a dataset's own shape; an unknown dataset raises."""
    from erda.data.catalogue import DATASETS, OWN_SHAPE, find_entry

    if dataset not in DATASETS and user_path(dataset).exists():
        return OWN_SHAPE.shots
    return find_entry(dataset).shape.shots


def _models(options: RunOptions, found: list[str]) -> dict[str, type[Settings]]:
    """The settings model of each method of the run and of its encoder."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS, find_method, method_name
    from erda.methods.base import method_settings

    models: dict[str, type[Settings]] = {}
    for name in options.methods:
        try:
            models[method_name(name)] = method_settings(find_method(name))
        except SettingsError as error:
            found.append(str(error))
    if not options.methods:
        found.append(f"methods: none given. Known: {', '.join(sorted(METHODS))}.")
    return {**models, ENCODER: encoder_settings(options.encoder)}


def _name_fault(name: str, models: Mapping[str, type[Settings]], *, in_file: bool) -> str:
    """Why no part of the run has a setting of that name; empty if one has."""
    from erda.methods import METHODS

    owner, _, setting = name.rpartition(".")
    chosen = [one for one in models if one != ENCODER]
    if any(setting in flat_kinds(models[one]) for one in models if one in ([owner] if owner else chosen)):
        return ""
    if setting == "seed":
        return "a run's seed also orders its stream; give it with --seeds."
    others = [one for one in METHODS if one not in models and owner in ("", one) and setting in known_settings(one)]
    if others:
        has = f"only {', '.join(chosen)}" if chosen else "no known method"
        return "" if in_file else f"a setting of {', '.join(others)}, but the run has {has}."
    known = {f"{part}.{one}" for part, model in models.items() if owner or part == ENCODER for one in flat_kinds(model)}
    known |= {one for part in chosen if not owner for one in flat_kinds(models[part])}
    return unknown_name("setting", name, {*RUN_KINDS, *known})
