"""Settings files and flags -> validated settings; `building.py` makes objects of them.

Only this module, `presets/` and `cli/` know settings files.

What is given later wins: built-in defaults, then a preset, then a settings file, then `--set`, then flags of their own
(`--shots 5`). Within one of these, a setting for one method (`erda.memory_size`) wins over one for all
(`memory_size`). All faults are reported at once.

A settings file is TOML. Its top level holds the names of `RUN_KEYS`; its table `settings` holds what `--set` takes:

    dataset = "fewrel"
    shots = 5
    methods = ["erda", "seqrun"]

    [settings]
    batch_size = 5              # every method that has it
    erda.memory_size = 1        # one method
    encoder.hidden_size = 100   # the encoder
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.errors import ErdaError, SettingsError, join_faults, unknown_name
from erda.fields import flat_kinds, flat_values
from erda.settings.presets import Given, read_preset, read_settings_file
from erda.settings.values import STREAM_KEYS, put_value, read_sets

if TYPE_CHECKING:
    from erda.methods.base import Method

Setting = bool | int | float | str

# name at the top level of a settings file -> its type; also what `--set` and the flags of `erda run` are called
RUN_KEYS: dict[str, Any] = {
    "dataset": str,
    "shots": int,
    "order_family": str,
    "seeds": list[int],
    "methods": list[str],
    "encoder": str,
    "device": str,
    "evaluate_on": str,
    "cache_gb": float,
    "cache_dir": str,
    "corpus": str,
    **dict.fromkeys(STREAM_KEYS, int),
}
DEFAULTS: dict[str, Any] = {
    "dataset": "atlas",
    "shots": None,  # the dataset's own
    "order_family": "erda",
    "seeds": [],  # all six of the family
    "methods": ["erda"],
    "encoder": "bilstm",
    "device": "cpu",
    "evaluate_on": "test",
    "cache_gb": 4.0,  # what frozen layers of an encoder compute is kept up to this size; 0 keeps nothing
    "cache_dir": "",  # in memory
    "corpus": "",  # folder of a corpus with an index; without one there is no augmentation
}
POOLS = ("test", "validation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One method on one stream: what a record answers for.

    `settings` has three parts: "method" (every setting of the method), "encoder" (those that were given) and "stream"
    (how the stream was cut, beyond dataset, shots and order).
    """

    method: str
    encoder: str
    dataset: str
    shots: int
    order_family: str
    seed: int
    evaluate_on: str = "test"
    device: str = "cpu"
    corpus: str = ""  # where extra examples come from
    settings: dict[str, dict[str, Setting]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """How messages and progress bars call it."""
        return f"{self.method} {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Everything that `erda run` was asked to do, checked: several methods on several streams."""

    dataset: str
    shots: int
    order_family: str
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    encoder: str
    device: str
    evaluate_on: str
    cache_gb: float
    cache_dir: str
    corpus: str
    method_settings: dict[str, dict[str, Setting]]  # method -> every setting of it
    encoder_settings: dict[str, Setting]
    stream_settings: dict[str, Setting]

    def runs(self) -> tuple[Run, ...]:
        """Every method on every stream, seed by seed, so that methods can be compared early."""
        return tuple(
            Run(
                method=method,
                encoder=self.encoder,
                dataset=self.dataset,
                shots=self.shots,
                order_family=self.order_family,
                seed=seed,
                evaluate_on=self.evaluate_on,
                device=self.device,
                corpus=self.corpus if takes_augmenter(method) else "",
                settings={
                    "method": dict(self.method_settings[method]),
                    "encoder": dict(self.encoder_settings),
                    "stream": dict(self.stream_settings),
                },
            )
            for seed in self.seeds
            for method in self.methods
        )


# -- checking ----------------------------------------------------------------------------------------------------------


def load_settings(
    *,
    preset: str | None = None,
    file: Path | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, str | None] | None = None,
) -> RunSettings:
    """Put defaults, preset, file, `--set` and flags together, check it all, and report every fault at once.

    `flags` maps names of `RUN_KEYS` to the text of a flag of their own; None where it was not given.
    """
    faults: list[str] = []
    layers = [
        read_preset(preset) if preset else [],
        read_settings_file(file) if file else [],
        read_sets(sets, faults),
        [
            Given(name, text, "--method" if name == "methods" else f"--{name.replace('_', '-')}", is_text=True)
            for name, text in (flags or {}).items()
            if text is not None
        ],
    ]
    values = dict(DEFAULTS)
    for layer in layers:
        for given in layer:
            if given.name in RUN_KEYS:
                put_value(values, given, RUN_KEYS[given.name], faults)
    _check_run(values, faults)
    rest = [[given for given in layer if given.name not in RUN_KEYS] for layer in layers]
    method_settings, encoder_settings = _check_settings(values, rest, faults)
    if faults:
        raise SettingsError(join_faults(faults))
    return RunSettings(
        dataset=values["dataset"],
        shots=values["shots"],
        order_family=values["order_family"],
        seeds=tuple(values["seeds"]),
        methods=tuple(values["methods"]),
        encoder=values["encoder"],
        device=values["device"],
        evaluate_on=values["evaluate_on"],
        cache_gb=values["cache_gb"],
        cache_dir=values["cache_dir"],
        corpus=values["corpus"],
        method_settings={name: method_settings[name] for name in values["methods"]},
        encoder_settings=encoder_settings,
        stream_settings={name: values[name] for name in STREAM_KEYS if name in values},
    )


def _check_run(values: dict[str, Any], faults: list[str]) -> None:
    """Check names and numbers of the run itself, and fill in shots and seeds where none were given."""
    from erda.data.catalogue import default_seeds
    from erda.encoders.devices import check_device
    from erda.methods import METHODS

    try:
        shots = _default_shots(values["dataset"])
        values["shots"] = values["shots"] or shots
    except SettingsError as error:
        faults.append(str(error))
    try:
        values["seeds"] = values["seeds"] or list(default_seeds(values["dataset"], values["order_family"]))
    except ErdaError as error:
        faults.append(str(error))
    faults += [unknown_name("method", name, METHODS) for name in values["methods"] if name not in METHODS]
    for name in ("methods", "seeds"):
        twice = sorted({str(one) for one in values[name] if values[name].count(one) > 1})
        if twice:
            faults.append(f"{name}: {', '.join(twice)} given twice.")
    if not values["methods"]:
        faults.append(f"methods: none given. Known: {', '.join(sorted(METHODS))}.")
    if any(seed < 0 for seed in values["seeds"]):
        faults.append("seeds: must be 0 or more.")
    if values["evaluate_on"] not in POOLS:
        faults.append(unknown_name("pool to evaluate on", values["evaluate_on"], POOLS))
    try:
        check_device(values["device"])
    except SettingsError as error:
        faults.append(str(error))
    if values["corpus"] and not Path(values["corpus"]).expanduser().is_dir():
        faults.append(
            f"corpus: {values['corpus']} is no folder; make one with `erda corpus build` and `erda corpus index`."
        )


def _default_shots(dataset: str) -> int:
    """The shots of a dataset's own shape; a fault where there is no such dataset."""
    from erda.data.catalogue import DATASETS, find_entry

    if dataset not in DATASETS and Path(dataset).expanduser().exists():
        return 5
    return find_entry(dataset).shape.shots


def _check_settings(
    values: dict[str, Any], layers: list[list[Given]], faults: list[str]
) -> tuple[dict[str, dict[str, Setting]], dict[str, Setting]]:
    """Settings of the methods (defaults filled in) and of the encoder (only those given)."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS

    types = {name: settings_of(method) for name, method in METHODS.items()}
    chosen = [name for name in values["methods"] if name in METHODS]
    results: dict[str, dict[str, Setting]] = {name: default_settings(METHODS[name]) for name in METHODS}
    encoder_types = {name: type(value) for name, value in flat_values(encoder_settings(values["encoder"])()).items()}
    encoder: dict[str, Setting] = {}
    for layer in layers:
        for given in sorted(layer, key=lambda one: "." in one.name):  # for all methods first, then for one
            owner, _, name = given.name.rpartition(".")
            if owner == "encoder" and name in encoder_types:
                put_value(encoder, given, encoder_types[name], faults, name=name)
            elif owner in METHODS and name in types[owner]:
                put_value(results[owner], given, types[owner][name], faults, name=name)
            else:
                owners = [] if owner else [one for one in METHODS if name in types[one]]
                taking = [one for one in owners if one in chosen] if given.is_text else owners
                if not taking:
                    faults.append(_unknown_setting(given, chosen, owners, types, encoder_types))
                before = len(faults)
                for one in taking:
                    if len(faults) == before:
                        put_value(results[one], given, types[one][name], faults)
    return results, encoder


def _unknown_setting(
    given: Given, chosen: list[str], owners: list[str], types: Mapping[str, Mapping[str, type]], encoder: Iterable[str]
) -> str:
    if owners:
        return f"{given.origin}: a setting of {', '.join(owners)}, but the run has only {', '.join(chosen)}."
    if given.name == "seed":
        return f"{given.origin}: a run's seed also orders its stream; give it with --seeds."
    known = {*RUN_KEYS, *(f"encoder.{name}" for name in encoder)}
    owner = given.name.rpartition(".")[0]
    for method in chosen if not owner else (owner,):
        known |= {f"{owner}.{name}" if owner else name for name in types.get(method, ())}
    return f"{given.origin}: {unknown_name('setting', given.name, known)}"


def settings_of(method: type[Method]) -> dict[str, type]:
    """Names and types of the settings that a user may give a method; the seed is the run's."""
    from erda.methods.base import method_settings

    defaults = default_settings(method)
    return {name: type(defaults[name]) for name in flat_kinds(method_settings(method))}


def default_settings(method: type[Method]) -> dict[str, Setting]:
    """Every setting of a method with its built-in value."""
    from erda.methods.base import method_settings

    return flat_values(method_settings(method)())


def filled_settings(method: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Settings of a method as they were kept, with today's built-in value of each that did not exist then.

    A new setting must leave a method as it was by default; so what was run before it came was run with that value.
    """
    from erda.methods import METHODS

    return {**default_settings(METHODS[method]), **settings} if method in METHODS else dict(settings)


def takes_augmenter(method: str) -> bool:
    """Whether a method can use a corpus."""
    from erda.methods import METHODS

    return any(one.name == "augmenter" for one in fields(METHODS[method]))
