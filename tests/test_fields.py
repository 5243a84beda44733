"""Settings are found whatever the annotation style, and every fault is said in our words."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from erda.fields import (
    Count,
    Positive,
    Settings,
    Share,
    flat_kinds,
    flat_values,
    nested_values,
    settings_model,
    validation_faults,
)


class Inner(Settings):
    n_neighbours: Count = 1
    agreement: Literal["none", "mean"] = "none"


@dataclass
class Owner:
    encoder: object
    part: tuple[int, ...] = ()
    seed: int = 0
    rate: Positive = 0.5
    dropout: Share = 0.0
    level: Annotated[int, Field(ge=-1, lt=3)] = 0
    on: bool = True
    inner: Inner = field(default_factory=Inner)


def test_settings_of_a_dataclass() -> None:
    assert list(settings_model(Owner, without=("seed",)).model_fields) == ["rate", "dropout", "level", "on", "inner"]
    assert flat_values(settings_model(Owner)())["rate"] == 0.5


def test_nested_settings_are_flat_outside() -> None:
    model = settings_model(Owner)
    assert list(flat_kinds(model)) == ["seed", "rate", "dropout", "level", "on", "n_neighbours", "agreement"]
    flat = flat_values(model(rate=2, inner=Inner(n_neighbours=3)))
    assert flat == {
        **{"seed": 0, "rate": 2.0, "dropout": 0.0, "level": 0, "on": True},
        **{"n_neighbours": 3, "agreement": "none"},
    }
    assert flat_values(model(**nested_values(model, flat))) == flat
    assert nested_values(model, {"inner": Inner(n_neighbours=3)}) == {"inner": Inner(n_neighbours=3)}


def test_every_fault_is_said() -> None:
    model = settings_model(Owner)
    given = {"rate": 0, "dropout": 1.0, "level": 1.5, "on": "perhaps", "n_neighbours": 0, "agreement": "maen", "x": 1}
    with pytest.raises(ValidationError) as error:
        model(**nested_values(model, given))
    assert validation_faults(error.value) == [
        "rate: must be more than 0, got 0.",
        "dropout: must be less than 1, got 1.0.",
        "level: expected a whole number, got 1.5.",
        "on: expected true or false, got 'perhaps'.",
        "inner.n_neighbours: must be at least 1, got 0.",
        "inner.agreement: Unknown word 'maen'. Did you mean 'mean'? Known: mean, none.",
        "x: is not known here.",
    ]
    with pytest.raises(ValidationError) as error:
        model(rate=float("nan"))
    assert validation_faults(error.value) == ["rate: expected a finite number, got nan."]
