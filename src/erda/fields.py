"""Settings, declared where they are used: kinds of numbers with their range, and the model that checks them.

A setting stands with the part that it belongs to, its range and its words in its annotation:

    temperature: Positive = 0.2
    agreement: Literal["none", "mean", "nearest"] = "none"

`settings_model` makes a pydantic model of the settings of a class or a function, however they are annotated, and
`faults_of` says in our words everything that is wrong with values that were given.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

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
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "model": "an object",
    "dataclass": "an object",
    "finite_number": "a finite number",
}


class Settings(BaseModel):
    """Settings of a part: checked when they are made, never changed, nothing beside the known names."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def is_setting(kind: Any) -> bool:
    """Whether an annotation is that of a setting: a plain value with or without a range, words, or a nested model."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return all(isinstance(word, PLAIN) for word in get_args(kind))
    return kind in PLAIN or (isinstance(kind, type) and issubclass(kind, Settings))


@cache
def settings_model(owner: type | Callable[..., Any], *, without: tuple[str, ...] = ()) -> type[Settings]:
    """The model of all settings of a dataclass or a function: what is annotated as one and has a default."""
    hints = get_type_hints(owner, include_extras=True)
    if isinstance(owner, type) and is_dataclass(owner):
        defaults = {one.name: one.default if one.default is not MISSING else _made(one) for one in fields(owner)}
    else:
        defaults = {one.name: one.default for one in inspect.signature(owner).parameters.values()}
    known: dict[str, Any] = {
        name: (hints[name], default)
        for name, default in defaults.items()
        if name in hints
        and name not in without
        and is_setting(hints[name])
        and default not in (MISSING, inspect._empty)
    }
    return create_model(f"{owner.__name__}Settings", __base__=Settings, **known)


def _made(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else MISSING


def flat_kinds(model: type[Settings]) -> dict[str, Any]:
    """Names and annotations of all settings, those of nested models among them under their own names."""
    kinds: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Settings):
            kinds |= flat_kinds(kind)
        else:
            kinds[name] = Annotated[(kind, *field.metadata)] if field.metadata else kind
    return kinds


def flat_values(settings: Settings) -> dict[str, Any]:
    """Names and values of all settings as plain JSON, nested ones under their own names."""
    values: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        values |= flat_values(value) if isinstance(value, Settings) else {name: value}
    return values


def nested_values(model: type[Settings], flat: Mapping[str, Any]) -> dict[str, Any]:
    """What `flat_values` gave, put back into the shape of the model; unknown names stay, for the model to refuse."""
    left = dict(flat)
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Settings):
            own = {inner: left.pop(inner) for inner in flat_kinds(kind) if inner in left}
            values[name] = nested_values(kind, own)
        elif name in left:
            values[name] = left.pop(name)
    return {**values, **left}


def checked_settings(model: type[S], flat: Mapping[str, Any]) -> S:
    """Settings by their own names as a model; every fault at once. 1 is a float, but no text and no truth value is."""
    try:
        return model.model_validate(nested_values(model, flat), strict=True)
    except ValidationError as error:
        known = flat_kinds(model)
        faults = []
        for one in error.errors():
            name = str(one["loc"][-1]) if one["loc"] else ""  # a fault between settings has no place
            said = f"{name}: {_said(one)}" if name else _said(one)
            faults.append(said if name in known or not name else unknown_name("setting", name, known))
        raise SettingsError(join_faults(faults)) from None


def changed_settings(settings: S, changes: Mapping[str, Any]) -> S:
    """The same settings but for these, by their own names."""
    return checked_settings(type(settings), {**flat_values(settings), **changes}) if changes else settings


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """What checks a single value against the annotation of a setting."""
    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))


def checked_value(kind: Any, value: Any) -> Any:
    """A value of a setting, strictly: 1.5 is no whole number and 1 no truth value, but 1 is a number of any kind.

    Where several are expected, a list will do, and so will one alone.
    """
    if get_origin(kind) is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(checked_value(get_args(kind)[0], item) for item in items)
    return adapter(kind).validate_python(value, strict=True)


def value_of_text(kind: Any, text: str) -> Any:
    """Text of a command line as a value: several are separated by commas; only `true` and `false` are truth values."""
    if get_origin(kind) is tuple:
        return tuple(value_of_text(get_args(kind)[0], item) for item in map(str.strip, text.split(",")) if item)
    if kind is bool and text.lower() not in ("true", "false"):
        return checked_value(bool, text)  # refused
    return adapter(kind).validate_strings(text)


def faults_of(error: ValidationError) -> list[str]:
    """Every fault of a validation as `place: what is wrong`, places as in `steps[2].accuracy`."""
    return [
        f"{place}: {what}" if (place := _place(one["loc"])) else what for one in error.errors() for what in [_said(one)]
    ]


def _place(steps: tuple[int | str, ...]) -> str:
    place = ""
    for step in steps:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
    return place


_SAID: dict[str, Callable[[Any], str]] = {
    "missing": lambda fault: "is missing.",
    "extra_forbidden": lambda fault: "is not known here.",
    "unexpected_keyword_argument": lambda fault: "is not known here.",
    "value_error": lambda fault: str(fault["ctx"]["error"]),
    "too_short": lambda fault: "expected at least {min_length} values, got {actual_length}.".format(**fault["ctx"]),
    "too_long": lambda fault: "expected at most {max_length} values, got {actual_length}.".format(**fault["ctx"]),
    "json_invalid": lambda fault: f"is not whole JSON ({_at_column(fault['ctx']['error'])}).",
    "literal_error": lambda fault: unknown_name("word", str(fault["input"]), _words(fault["ctx"]["expected"])),
}
_LIMITS = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "less than {lt:g}",
}


def _said(fault: Any) -> str:
    """One fault of pydantic's in the words of our other messages."""
    kind, got = fault["type"], reprlib.repr(fault["input"])
    if kind in _SAID:
        return _SAID[kind](fault)
    if kind in _LIMITS:
        return f"must be {_LIMITS[kind].format(**fault['ctx'])}, got {got}.".replace("'", "")  # a number that was text
    expected = _KINDS.get(kind, _KINDS.get(kind.split("_")[0]))
    what = f"expected {expected}" if expected else fault["msg"][:1].lower() + fault["msg"][1:]
    return f"{what}, got {got}."


def _at_column(error: str) -> str:
    return error.replace(" at line 1 column", " at column")  # lines are counted by whoever reads them


def _words(expected: str) -> list[str]:
    return [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]
