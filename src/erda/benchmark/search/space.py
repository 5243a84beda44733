"""Search space: `NAME=v1,v2,...` or `NAME=low:high[:log]` -> validated choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from erda.errors import SettingsError, join_faults, unknown_name
from erda.fields import flat_values, value_of_text
from erda.settings.load import tidy_name
from erda.settings.runs import RUN_KINDS, Setting, default_settings

# the paper's search space for ERDA; the settings of augmentation need a corpus
PAPER_AUGMENTATION = ("match_threshold=0.3,0.35,0.4,0.45,0.5,0.55,0.6,0.65,0.7,0.75,0.8", "n_neighbours=1:3")
PAPER_LOSSES = (
    "multi_margin=0.1,0.2,0.3",
    "pairwise_margin=0.1,0.2,0.3",
    "contrastive_margin=0.01,0.02,0.03",
    "memory_iterations=1:3",
)
LOG = "log"
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting and its possible values: a list, the whole numbers of a range, or a continuous range."""

    name: str  # METHOD.NAME or encoder.NAME
    kind: type
    values: tuple[Setting, ...] = ()  # none: a continuous range
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    def suggest(self, trial: Any) -> Setting:
        """Value suggested by Optuna's trial, rounded to four digits."""
        if self.low == self.high:
            found: Setting = trial.suggest_categorical(self.name, self.values)
            return found
        if self.kind is int:
            return int(trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log))
        number: float = trial.suggest_float(self.name, self.low, self.high, log=self.log)
        return min(max(float(f"{number:.4g}"), self.low), self.high)

    def has(self, value: Setting) -> bool:
        """Whether the search may try this value."""
        if self.values:
            return value in self.values
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        if self.values:
            return f"{self.name}={','.join(map(as_text, self.values))}"
        return f"{self.name}={as_text(self.kind(self.low))}:{as_text(self.kind(self.high))}{':log' if self.log else ''}"


def as_text(value: Setting) -> str:
    """Format a value for `--set` and TOML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def default_space(method: str, *, with_corpus: bool) -> tuple[str, ...]:
    """The paper's grid for ERDA; other methods have no default."""
    if method != "erda":
        raise SettingsError(f"--space: give one or more; method '{method}' has no default space.")
    return (*PAPER_AUGMENTATION, *PAPER_LOSSES) if with_corpus else PAPER_LOSSES


def parse_space(
    texts: Sequence[str],
    *,
    method: str,
    encoder: str,
    grid: bool = False,
    check: Callable[[str, str], object] = lambda name, value: None,
) -> tuple[Choice, ...]:
    """Parse choices and report all faults at once; `check(name, value)` raises for an invalid value."""
    from erda.encoders import encoder_settings
    from erda.methods import METHODS

    kinds = {f"{method}.{name}": type(value) for name, value in default_settings(METHODS[method]).items()}
    kinds |= {f"encoder.{name}": type(value) for name, value in flat_values(encoder_settings(encoder)()).items()}
    faults: list[str] = []
    found: dict[str, Choice] = {}
    for text in texts:
        try:
            choice = _parse(text, kinds, method, grid=grid)
            if choice.name in found:
                raise SettingsError("given twice.")
            found[choice.name] = choice
            for value in choice.values or (choice.kind(choice.low), choice.kind(choice.high)):
                check(choice.name, as_text(value))
        except SettingsError as error:
            reason = str(error).removeprefix(f"--set {text.partition('=')[0].strip()}: ")
            faults.append(f"--space {text}: {reason}")
    if faults:
        raise SettingsError(join_faults(faults))
    return tuple(found.values())


def _parse(text: str, kinds: dict[str, type], method: str, *, grid: bool) -> Choice:
    name, sign, given = (part.strip() for part in text.partition("="))
    if not sign or not name or not given:
        raise SettingsError("expected NAME=v1,v2,... or NAME=low:high[:log].")
    name = tidy_name(name)
    if name in RUN_KINDS:
        raise SettingsError("changes what is measured, so its values cannot be compared; search settings of a method.")
    full = name if "." in name else f"{method}.{name}"
    if full not in kinds:
        known = {one.removeprefix(f"{method}.") for one in kinds}
        raise SettingsError(unknown_name("setting", name, known))
    kind = kinds[full]
    if ":" in given and kind in (int, float):
        return _range(full, kind, [part.strip() for part in given.split(":")], grid=grid)
    values = tuple(_value(part.strip(), kind) for part in given.split(","))
    if len(set(values)) < len(values):
        raise SettingsError("a value is given twice.")
    if len(values) < 2:
        raise SettingsError("one value leaves nothing to search; use --set.")
    return Choice(full, kind, values)


def _value(text: str, kind: type) -> Setting:
    value: Setting = value_of_text(kind, text)
    if not isinstance(value, kind):
        raise SettingsError(f"expected {KINDS[kind]}, got '{text}'.")
    return value


def _range(name: str, kind: type, parts: list[str], *, grid: bool) -> Choice:
    if len(parts) not in (2, 3) or parts[2:] not in ([], [LOG]):
        raise SettingsError("expected low:high or low:high:log, or a list of values.")
    low, high = (float(_value(part, kind)) for part in parts[:2])
    is_log = parts[2:] == [LOG]
    if not low < high < float("inf"):
        raise SettingsError(f"low ({low:g}) must be below high ({high:g}), and both must be finite.")
    if is_log and low <= 0:
        raise SettingsError("a logarithmic range must start above 0.")
    values: tuple[Setting, ...] = ()
    if kind is int and not is_log:
        if high - low >= MOST_VALUES:
            raise SettingsError(f"makes {high - low + 1:,.0f} values; expected at most {MOST_VALUES:,}.")
        values = tuple(range(int(low), int(high) + 1))
    if grid and not values:
        raise SettingsError("a grid needs a list of values, or use --sampler tpe.")
    return Choice(name, kind, values, low, high, is_log)
