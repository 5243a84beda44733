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
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from erda.errors import ErdaError, SettingsError, join_faults, one_line, unknown_name
from erda.fields import S, Settings, flat_kinds, flat_values, named_faults, nested_values, value_of_text
from erda.files import user_path
from erda.settings.runs import RUN_KINDS, RunOptions, RunSettings, StreamSettings

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, slots=True)
class Given:
    """A value and its origin, as messages name it: `--set erda.batch_size`, `mine.toml: shots`."""

    value: Any
    origin: str
    in_file: bool = False  # a file may also hold settings of methods that the run does not have
    is_text: bool = False  # the command line


Layer = Mapping[str, Given]  # `shots`, `batch_size`, `erda.memory_size`, `encoder.hidden_size`


def run_settings(
    *, preset: str | None = None, file: Path | None = None, settings: Mapping[str, Any] | None = None, **values: Any
) -> RunSettings:
    """Build run settings from a preset or a TOML file, overridden by keyword arguments.

    >>> run_settings(preset="demo", methods="erda", seeds=100, settings={"erda.memory_size": 2}).seeds
    (100,)
    """
    return settings_from([*layers_of(preset, file), given_values({**values, **(settings or {})})])


def given_values(values: Mapping[str, Any]) -> dict[str, Given]:
    """Build a layer from keyword arguments; None means unset."""
    return {tidy_name(name): Given(value, name) for name, value in values.items() if value is not None}


def tidy_name(name: str) -> str:
    """Normalise a setting name to underscores; a method name before a dot keeps its hyphens."""
    owner, dot, setting = name.strip().rpartition(".")
    return f"{owner}{dot}{setting.replace('-', '_')}"


# -- presets and files -------------------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    """Names of all built-in presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset, merged over the preset named by its `like`."""
    if name not in preset_names():
        raise SettingsError(unknown_name("preset", name, preset_names()))
    own = _read_toml(PRESETS / f"{name}.toml")
    return _over(read_preset(own.pop("like")), own) if "like" in own else own


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two TOML tables recursively; `above` wins."""
    inner = {key: _over(below.get(key, {}), value) for key, value in above.items() if isinstance(value, dict)}
    return {**below, **above, **inner}


def layers_of(preset: str | None, file: Path | None = None) -> list[Layer]:
    """The layers of a preset and a file, in this order."""
    found = [_layer(read_preset(preset), f"preset '{preset}'")] if preset else []
    return [*found, _layer(_read_toml(file), str(file))] if file else found


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}.") from error
    except (ValueError, RecursionError):
        raise SettingsError(f"{path}: holds a number that is too long, or is nested too deeply.") from None


def _layer(toml: Mapping[str, Any], origin: str) -> Layer:
    flat = {name: value for name, value in toml.items() if name not in ("description", "settings")}
    settings = toml.get("settings", {})
    if not isinstance(settings, dict):
        raise SettingsError(f"{origin}: 'settings' must be a table, [settings].")
    for name, value in settings.items():
        flat |= {f"{name}.{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return {tidy_name(name): Given(value, f"{origin}: {name}", in_file=True) for name, value in flat.items()}


def merged(layers: Iterable[Layer]) -> dict[str, Given]:
    """Merge layers; a later setting of all methods also replaces an earlier one of a single method."""
    result: dict[str, Given] = {}
    for layer in layers:
        kept = (name for name in result if name.startswith("encoder.") or name.rpartition(".")[2] not in layer)
        result = {**{name: result[name] for name in kept}, **layer}
    return result


# -- validation --------------------------------------------------------------------------------------------------------


def settings_from(layers: Iterable[Layer], *, faults: Iterable[str] = ()) -> RunSettings:
    """Merge layers and validate the result. All faults are reported at once, after those of reading the layers."""
    given, found = merged(layers), list(faults)
    options = validated(RunOptions, {name: name for name in RunOptions.model_fields if name in given}, given, found)
    cut = {name: name for name in StreamSettings.model_fields if name in given}
    stream = validated(StreamSettings, cut, given, found)
    completed = _completed(options, found)
    models = _models(options, found)
    own: dict[str, dict[str, Any]] = {}
    for part, model in models.items():
        keys = {name: name for name in flat_kinds(model) if part != "encoder" and name in given}
        keys |= {name: f"{part}.{name}" for name in flat_kinds(model) if f"{part}.{name}" in given}
        checked = flat_values(validated(model, keys, given, found, whose=part))
        own[part] = {name: value for name, value in checked.items() if part != "encoder" or name in keys}
    for name, one in given.items():
        if name not in RUN_KINDS and (fault := _name_fault(name, models, in_file=one.in_file)):
            found.append(f"{one.origin}: {fault}")
    if found:
        raise SettingsError(join_faults(list(dict.fromkeys(found))))
    return RunSettings(
        **{**completed, "methods": [name for name in models if name != "encoder"]},
        encoder_settings=own.pop("encoder"),
        method_settings=own,
        stream_settings={name: getattr(stream, name) for name in cut},
    )


def validated(model: type[S], keys: Mapping[str, str], given: Layer, found: list[str], *, whose: str = "") -> S:
    """Validate the settings of one part; `keys` maps its settings to names in `given`. Faulty ones keep the default."""
    kinds = flat_kinds(model)
    values = {name: value_of_text(kinds[name], given[key].value) for name, key in keys.items() if given[key].is_text}
    values |= {name: given[key].value for name, key in keys.items() if not given[key].is_text}
    try:
        return model.model_validate(nested_values(model, values), strict=True)
    except ValidationError as error:
        faults = list(named_faults(model, error))
    found += [f"{given[keys[name]].origin if name in keys else whose}: {said}" for name, said in faults]
    wrong = {name for name, _ in faults}
    rest = {name: key for name, key in keys.items() if name not in wrong}
    return validated(model, rest, given, found, whose=whose) if len(rest) < len(keys) else model()


def _completed(options: RunOptions, found: list[str]) -> dict[str, Any]:
    """The options with default shots and seeds filled in; check names and folders."""
    from erda.data.catalogue import default_seeds
    from erda.encoders import check_device

    values: dict[str, Any] = {}
    for check in (
        lambda: values.update(shots=_default_shots(options.dataset)),
        lambda: values.update(seeds=default_seeds(options.dataset, options.order_family)),
        lambda: check_device(options.device),
        lambda: _check_corpus(options.corpus),
    ):
        try:
            check()
        except ErdaError as error:
            found.append(str(error))
    for name, listed in (("methods", options.methods), ("seeds", options.seeds)):
        twice = sorted({str(one) for one in listed if listed.count(one) > 1})
        if twice:
            found.append(f"{name}: {', '.join(twice)} given twice.")
    return {**values, **{name: value for name, value in flat_values(options).items() if value not in (None, ())}}


def _check_corpus(folder: str) -> None:
    if folder and not user_path(folder).is_dir():
        make = "make one with `erda corpus build` and `erda corpus index`"
        raise SettingsError(f"corpus: {one_line(folder)} is not a folder; {make}.")


def _default_shots(dataset: str) -> int:
    """The shots of a dataset's own shape; an unknown dataset raises."""
    from erda.data.catalogue import DATASETS, find_entry
    from erda.data.own_data import OWN_SHOTS

    if dataset not in DATASETS and user_path(dataset).exists():
        return OWN_SHOTS
    return find_entry(dataset).shape.shots


def _models(options: RunOptions, found: list[str]) -> dict[str, type[Settings]]:
    """The settings model of each method of the run and of its encoder."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS, find_method, method_name
    from erda.methods.base import method_settings

    models: dict[str, type[Settings]] = {}
    for name in options.methods:
        try:
            method = find_method(name)
            models[method_name(name)] = method_settings(method)
        except SettingsError as error:
            found.append(str(error))
    if not options.methods:
        found.append(f"methods: none given. Known: {', '.join(sorted(METHODS))}.")
    return {**models, "encoder": encoder_settings(options.encoder)}


def _name_fault(name: str, models: Mapping[str, type[Settings]], *, in_file: bool) -> str:
    """Why no part of the run has a setting of that name; empty if one has."""
    from erda.methods import METHODS

    owner, _, setting = name.rpartition(".")
    chosen = [one for one in models if one != "encoder"]
    if any(setting in flat_kinds(models[one]) for one in ([owner] if owner else chosen) if one in models):
        return ""
    if setting == "seed":
        return "a run's seed also orders its stream; give it with --seeds."
    others = [one for one in METHODS if one not in models and owner in ("", one) and _has(one, setting)]
    if others:
        has = f"only {', '.join(chosen)}" if chosen else "no known method"
        return "" if in_file else f"a setting of {', '.join(others)}, but the run has {has}."
    known = {*RUN_KINDS, *(f"encoder.{one}" for one in flat_kinds(models["encoder"]))}
    for one in [owner] if owner in models else chosen:
        known |= {f"{owner}.{setting}" if owner else setting for setting in flat_kinds(models[one])}
    return unknown_name("setting", name, known)


def _has(method: str, setting: str) -> bool:
    """Whether a method has a setting; False if its extra is not installed."""
    from erda.methods import find_method
    from erda.methods.base import method_settings

    try:
        return setting in flat_kinds(method_settings(find_method(method)))
    except ImportError:
        return False
