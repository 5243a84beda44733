"""Values of settings: from text or TOML to what a setting takes, or what is wrong with them.

A setting has a kind (bool, int, float, str, or a list of int or str); a number has a range, and some texts are one of a
few words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from erda.errors import SettingsError, join_faults, unknown_name
from erda.settings.presets import Given, tidy_name

# how a stream is cut, where the dataset's own shape is not wanted (`open_stream`)
STREAM_KEYS = ("way", "first_way", "first_shots", "n_tasks", "test_per_relation", "candidates")
KIND_NAMES: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
# Settings are counts, sizes, weights, margins and rates, so 0 or more unless it says otherwise here: (least, below).
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("shots", *STREAM_KEYS), (1, math.inf)),
    "batch_size": (1, math.inf),
    "hidden_size": (1, math.inf),
    "temperature": (1e-6, math.inf),
    "max_gradient_norm": (1e-6, math.inf),
    "dropout": (0, 1),
    "match_threshold": (-1, 1),
    "neighbour_threshold": (-1, 1),
    "agreement_margin": (-2, 2),
    "max_matches": (1, math.inf),
    "n_neighbours": (1, math.inf),
    "trained_layers": (-2, math.inf),  # -1: all, -2: what the encoder's mode says
}


def allowed_words(name: str) -> Sequence[str]:
    """The words of which a setting is one; none where it is a number or any text."""
    if name == "agreement":
        return "none", "mean", "nearest"
    if name == "mode":
        return "paper", "markers"
    if name == "precision":
        return "fp32", "bf16"
    return ()


def read_sets(sets: Iterable[str], faults: list[str]) -> list[Given]:
    """What `--set NAME=VALUE` gave; what is not of that form goes to the faults."""
    given = []
    for text in sets:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            faults.append(f"--set {text}: expected name=value.")
        else:
            given.append(Given(tidy_name(name), value.strip(), f"--set {name.strip()}", is_text=True))
    return given


def values_of(sets: Iterable[str], kinds: Mapping[str, type], *, what: str) -> dict[str, Any]:
    """The values that `--set` gave settings of these kinds, or every fault at once; `what` is what they are called."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for given in read_sets(sets, faults):
        if given.name in kinds:
            put_value(values, given, kinds[given.name], faults)
        else:
            faults.append(f"{given.origin}: {unknown_name(what, given.name, kinds)}")
    if faults:
        raise SettingsError(join_faults(faults))
    return values


def put_value(target: dict[str, Any], given: Given, kind: Any, faults: list[str], *, name: str | None = None) -> None:
    """Convert one value and keep it, or say what is wrong with it."""
    name = name or given.name
    try:
        value = _convert(given, kind)
        _check_value(name, value)
    except SettingsError as error:
        shown = "" if given.origin.endswith(given.name) else f" {given.name}:"
        faults.append(f"{given.origin}:{shown} {error}")
    else:
        target[name] = value


def _convert(given: Given, kind: Any) -> Any:
    """The value as `kind`, strictly: 1.5 is no whole number, 1 is no truth value, but 1 may be a float."""
    value = given.value
    if kind in (list[str], list[int]):
        (inner,) = kind.__args__
        items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
        if isinstance(items, int) and inner is int:
            items = [items]
        if not isinstance(items, list):
            raise SettingsError(f"expected a list, got {value!r}.")
        return [_convert(Given(given.name, item, given.origin, given.is_text), inner) for item in items if item != ""]
    if given.is_text:
        value = _parse(str(value), kind)
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SettingsError(f"expected {KIND_NAMES[kind]}, got {given.value!r}.")
    return value


def _parse(text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        return None


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, str):
        words = allowed_words(name)
        if words and value not in words:
            raise SettingsError(unknown_name(name, value, words))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    least, below = RANGES.get(name, (0, math.inf))
    if not least <= value < below:
        limit = f"at least {least:g}" + (f" and below {below:g}" if below < math.inf else "")
        raise SettingsError(f"must be {limit}, got {value}.")
