"""Setting types with their ranges, the base model of all settings, and faults in plain words.

A part declares its settings as annotated fields:

    temperature: Positive = 0.2
    agreement: Literal["none", "mean"] = "none"

`settings_model` builds the pydantic model of a method from its dataclass. Outside the model, nested settings are flat:
each has its own name.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from erda.errors import SettingsError, join_faults, unknown_name

Number = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]  # of a whole: dropout, a part of the data
Fraction = Annotated[float, Field(ge=0, le=1)]
Similarity = Annotated[float, Field(ge=-1, le=1)]

S = TypeVar("S", bound="Settings")
PLAIN = (bool, int, float, str)


class Settings(BaseModel):
    """Frozen settings of one part; unknown names, NaN and infinity are rejected."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)


def is_setting(kind: Any) -> bool:
    """Whether an annotation declares a setting: a plain type with or without a range, a Literal, a nested model."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return all(isinstance(word, PLAIN) for word in get_args(kind))
    return kind in PLAIN or _is_model(kind)


@cache
def settings_model(owner: type, *, without: tuple[str, ...] = ()) -> type[Settings]:
    """Build the model of a dataclass's settings: all fields with a setting's annotation and a default."""
    hints = get_type_hints(owner, include_extras=True)
    known: dict[str, Any] = {}
    for one in fields(owner):
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if one.name not in without and is_setting(hints[one.name]) and default is not MISSING:
            known[one.name] = (hints[one.name], default)
    return create_model(f"{owner.__name__}Settings", __base__=Settings, **known)


# -- nested settings under their own names -----------------------------------------------------------------------------


def flat_kinds(model: type[Settings]) -> dict[str, Any]:
    """Name and type of every setting, nested ones included."""
    kinds: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        kinds |= flat_kinds(kind) if _is_model(kind) else {name: kind}
    return kinds


def flat_values(settings: Settings) -> dict[str, Any]:
    """Name and value of every setting as plain JSON, nested ones included."""
    values: dict[str, Any] = {}
    for name, value in settings:
        values |= flat_values(value) if isinstance(value, Settings) else {name: value}
    return values


def nested_values(model: type[Settings], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Invert `flat_values`. Nested models stay as they are; unknown names stay, for the model to reject."""
    values = dict(flat)
    for name, field in model.model_fields.items():
        if _is_model(field.annotation) and not isinstance(values.get(name), Settings):
            inner: Any = field.annotation
            own = {one: values.pop(one) for one in flat_kinds(inner) if one in values}
            values[name] = nested_values(inner, own)
    return values


def try_settings(model: type[S], flat: Mapping[str, Any]) -> tuple[S | None, list[tuple[str, str]]]:
    """Validate flat settings strictly: return them, or every fault with the name of its setting.

    An int is a float, but no string is a number. The name is empty if it is unknown, or if two settings clash.
    """
    try:
        return model.model_validate(nested_values(model, flat), strict=True), []
    except ValidationError as error:
        known, faults = flat_kinds(model), []
        for one in error.errors():
            name = next((step for step in reversed(one["loc"]) if isinstance(step, str)), "")
            is_known = name in known or not name
            faults.append((name, fault_text(one)) if is_known else ("", unknown_name("setting", name, known)))
        return None, faults


def checked_settings(model: type[S], flat: Mapping[str, Any]) -> S:
    """Validate flat settings strictly, or raise with every fault."""
    settings, faults = try_settings(model, flat)
    if settings is None:
        raise SettingsError(join_faults([f"{name}: {said}" if name else said for name, said in faults]))
    return settings


def changed_settings(settings: S, changes: Mapping[str, Any]) -> S:
    """Copy settings with some flat values replaced."""
    return checked_settings(type(settings), {**flat_values(settings), **changes}) if changes else settings


def value_of_text(kind: Any, text: str) -> Any:
    """Convert command-line text to the type of a setting. Text that does not fit stays text, for the model to reject.

    >>> value_of_text(tuple[int, ...], "1, 2"), value_of_text(bool, "True"), value_of_text(int, "1.5")
    ((1, 2), True, '1.5')
    """
    inner = [one for one in get_args(kind) if one not in (type(None), ...)]
    if get_origin(kind) is tuple:
        return tuple(value_of_text(inner[0], item) for item in map(str.strip, text.split(",")) if item)
    if inner and get_origin(kind) is not Literal:  # Annotated[kind, range] or kind | None
        return value_of_text(inner[0], text)
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


# -- faults in plain words ---------------------------------------------------------------------------------------------


def validation_faults(error: ValidationError) -> list[str]:
    """Every fault of a validation as `place: message`, with places such as `steps[2].accuracy`."""
    places = [
        "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in one["loc"]).removeprefix(".")
        for one in error.errors()
    ]
    said = [fault_text(one) for one in error.errors()]
    return [f"{place}: {what}" if place else what for place, what in zip(places, said, strict=True)]


_TEXTS: dict[str, Callable[[Any], str]] = {
    "missing": lambda fault: "is missing.",
    "extra_forbidden": lambda fault: "is not known here.",
    "unexpected_keyword_argument": lambda fault: "is not known here.",
    "value_error": lambda fault: str(fault["ctx"]["error"]),
    "too_short": lambda fault: "expected at least {min_length} values, got {actual_length}.".format(**fault["ctx"]),
    "too_long": lambda fault: "expected at most {max_length} values, got {actual_length}.".format(**fault["ctx"]),
    "string_too_long": lambda fault: (
        f"expected at most {fault['ctx']['max_length']:,} characters, got {len(fault['input']):,}."
    ),
    # the caller counts the lines
    "json_invalid": lambda fault: (
        f"is not valid JSON ({fault['ctx']['error'].replace(' at line 1 column', ' at column')})."
    ),
    "literal_error": lambda fault: unknown_name("word", str(fault["input"]), _words(fault["ctx"]["expected"])),
}
_LIMITS = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "less than {lt:g}",
}
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    **dict.fromkeys(("dict", "model", "dataclass"), "an object"),
    "finite_number": "a finite number",
}


def fault_text(fault: Any) -> str:
    """Translate one of pydantic's faults into a sentence in the style of our other messages."""
    kind, got = fault["type"], reprlib.repr(fault["input"])
    if kind in _TEXTS:
        return _TEXTS[kind](fault)
    if kind in _LIMITS:
        return f"must be {_LIMITS[kind].format(**fault['ctx'])}, got {got}."
    expected = _KINDS.get(kind, _KINDS.get(kind.split("_")[0]))
    what = f"expected {expected}" if expected else fault["msg"][:1].lower() + fault["msg"][1:]
    return f"{what}, got {got}."


def _words(expected: str) -> list[str]:
    return [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]
