"""Settings from presets, files and callers, checked: every fault at once, each with the place where it was written.

What is given later wins: built-in defaults, then a preset, then a settings file, then what a caller or a command line
gives. Within one of these, a setting for one method (`erda.memory_size`) wins over one for all (`memory_size`).

A settings file is TOML. Its top level holds the names of `RUN_KINDS`; its table `settings` holds everything else:

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from erda.errors import ErdaError, SettingsError, join_faults, unknown_name
from erda.fields import checked_settings, checked_value, faults_of, flat_kinds
from erda.files import user_path
from erda.settings.runs import RUN_KINDS, RunSettings, Setting, StreamSettings, default_settings

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name = value`, and where that was written."""

    name: str
    value: Any
    origin: str
    in_file: bool = False  # where settings of methods that a run does not have may stand as well
    read: Callable[[Any, Any], Any] = checked_value  # kind, value -> the value as that kind, or a ValidationError

    def put(self, target: dict[str, Any], kind: Any, faults: list[str], *, name: str | None = None) -> None:
        """Keep the value in `target`, or say what is wrong with it."""
        try:
            target[name or self.name] = self.read(kind, self.value)
        except ValidationError as error:
            shown = "" if self.origin.endswith(self.name) else f" {self.name}:"
            faults += [f"{self.origin}:{shown} {fault}" for fault in faults_of(error)]


def run_settings(
    *, preset: str | None = None, file: Path | None = None, settings: Mapping[str, Any] | None = None, **values: Any
) -> RunSettings:
    """The settings of some runs: those of a preset or a TOML file, and what is given here by the same names.

    >>> run_settings(preset="demo", methods="erda", seeds=100, settings={"erda.memory_size": 2}).seeds
    (100,)
    """
    return settings_from([*layers_of(preset, file), assignments({**values, **(settings or {})})])


def assignments(values: Mapping[str, Any]) -> list[Assignment]:
    """What a program gives, by name; None is not given."""
    return [Assignment(tidy_name(name), value, name) for name, value in values.items() if value is not None]


def tidy_name(name: str) -> str:
    """The name of a setting, however its words are joined; the method before a dot keeps its hyphens."""
    owner, dot, setting = name.strip().rpartition(".")
    return f"{owner}{dot}{setting.replace('-', '_')}"


# -- presets and files -------------------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    """All presets that come with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """What a preset gives, over what the preset gives that it is `like`."""
    if name not in preset_names():
        raise SettingsError(unknown_name("preset", name, preset_names()))
    own = _read_toml(PRESETS / f"{name}.toml")
    return _over(read_preset(own.pop("like")), own) if "like" in own else own


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of TOML as one, table by table; `above` wins."""
    inner = {key: _over(below.get(key, {}), value) for key, value in above.items() if isinstance(value, dict)}
    return {**below, **above, **inner}


def layers_of(preset: str | None, file: Path | None = None) -> list[list[Assignment]]:
    """What a preset and a file give, in this order."""
    found = [_assignments_of(read_preset(preset), f"preset '{preset}'")] if preset else []
    return [*found, _assignments_of(_read_toml(file), str(file))] if file else found


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


def _assignments_of(toml: Mapping[str, Any], origin: str) -> list[Assignment]:
    top = {name: value for name, value in toml.items() if name not in ("description", "settings")}
    settings = toml.get("settings", {})
    if not isinstance(settings, dict):
        raise SettingsError(f"{origin}: 'settings' must be a table, [settings].")
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= {f"{name}.{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return [
        Assignment(tidy_name(name), value, place, in_file=True)
        for place, values in ((origin, top), (f"{origin}, [settings]", flat))
        for name, value in values.items()
    ]


# -- checking ----------------------------------------------------------------------------------------------------------


def settings_from(layers: Iterable[Sequence[Assignment]], *, faults: Iterable[str] = ()) -> RunSettings:
    """Put layers together, the later over the earlier, and check it all; `faults` were found in reading them."""
    layers, faults = list(layers), list(faults)
    values = {name: one.default for name, one in RunSettings.model_fields.items() if not one.is_required()}
    for given in chain(*layers):
        if given.name in RUN_KINDS:
            given.put(values, RUN_KINDS[given.name], faults)
    _complete(values, faults)
    rest = [[given for given in layer if given.name not in RUN_KINDS] for layer in layers]
    methods, encoder = _part_settings(rest, values["methods"], values["encoder"], faults)
    if faults:
        raise SettingsError(join_faults(faults))
    cut = {name: values.pop(name) for name in StreamSettings.model_fields if name in values}
    own = {name: methods[name] for name in values["methods"]}
    return RunSettings(**values, method_settings=own, encoder_settings=encoder, stream_settings=cut)


def _complete(values: dict[str, Any], faults: list[str]) -> None:
    """Fill in shots and seeds where none were given, and check names."""
    from erda.data.catalogue import default_seeds
    from erda.encoders.devices import check_device
    from erda.methods import METHODS

    seeds = values.get("seeds")
    for check in (
        lambda: values.setdefault("shots", _default_shots(values["dataset"])),
        lambda: values.update(seeds=seeds or default_seeds(values["dataset"], values["order_family"])),
        lambda: check_device(values["device"]),
    ):
        try:
            check()
        except ErdaError as error:
            faults.append(str(error))
    faults += [unknown_name("method", name, METHODS) for name in values["methods"] if name not in METHODS]
    if not values["methods"]:
        faults.append(f"methods: none given. Known: {', '.join(sorted(METHODS))}.")
    for name in ("methods", "seeds"):
        given = values.get(name, ())
        twice = sorted({str(one) for one in given if given.count(one) > 1})
        if twice:
            faults.append(f"{name}: {', '.join(twice)} given twice.")
    if values["corpus"] and not user_path(values["corpus"]).is_dir():
        make = "make one with `erda corpus build` and `erda corpus index`"
        faults.append(f"corpus: {values['corpus']} is no folder; {make}.")


def _default_shots(dataset: str) -> int:
    """The shots of a dataset's own shape; a fault where there is no such dataset."""
    from erda.data.catalogue import DATASETS, find_entry
    from erda.data.own import OWN_SHOTS

    if dataset not in DATASETS and user_path(dataset).exists():
        return OWN_SHOTS
    return find_entry(dataset).shape.shots


def _part_settings(
    layers: Iterable[Sequence[Assignment]], chosen: Sequence[str], encoder: str, faults: list[str]
) -> tuple[dict[str, dict[str, Setting]], dict[str, Setting]]:
    """Settings of all methods (defaults filled in) and of the encoder (only those given)."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS
    from erda.methods.base import method_settings

    models = {name: method_settings(method) for name, method in METHODS.items()}
    models["encoder"] = encoder_settings(encoder)
    kinds = {name: flat_kinds(model) for name, model in models.items()}
    found = {name: default_settings(method) for name, method in METHODS.items()}
    found["encoder"] = {}
    chosen = [name for name in chosen if name in METHODS]
    for layer in layers:
        for given in sorted(layer, key=lambda one: "." in one.name):  # for all methods first, then for one
            owner, _, name = given.name.rpartition(".")
            owners = [one for one in ([owner] if owner else METHODS) if name in kinds.get(one, ())]
            taking = owners if owner or given.in_file else [one for one in owners if one in chosen]
            if not taking:
                faults.append(f"{given.origin}: {_unknown_setting(given.name, chosen, owners, kinds)}")
            before = len(faults)
            for one in taking:
                if len(faults) == before:  # what is wrong for one method is wrong for the others
                    given.put(found[one], kinds[one][name], faults, name=name)
    if not faults:  # what two settings do to each other
        for one in (*chosen, "encoder"):
            try:
                checked_settings(models[one], found[one])
            except SettingsError as error:
                faults.append(f"{one}: {error}")
    return found, found.pop("encoder")


def _unknown_setting(
    name: str, chosen: Sequence[str], owners: Sequence[str], kinds: Mapping[str, Mapping[str, Any]]
) -> str:
    if owners:
        has = f"only {', '.join(chosen)}" if chosen else "no known method"
        return f"a setting of {', '.join(owners)}, but the run has {has}."
    if name == "seed":
        return "a run's seed also orders its stream; give it with --seeds."
    owner = name.rpartition(".")[0]
    known = {*RUN_KINDS, *(f"encoder.{one}" for one in kinds["encoder"])}
    for method in [owner] if owner else chosen:
        known |= {f"{owner}.{one}" if owner else one for one in kinds.get(method, ())}
    return unknown_name("setting", name, known)
