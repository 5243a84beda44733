"""Measured figures beside their targets, and how the scripts of this folder print them."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from erda.errors import ErdaError

COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. A target is an operator and a number (">= 49"), or "" for no target."""

    name: str
    value: float | None  # None if it could not be measured
    unit: str = ""
    target: str = ""

    @property
    def verdict(self) -> str:
        """Whether the measured number meets the target; an unmeasured number meets none."""
        if not self.target:
            return ""
        if self.value is None:
            return "not measured"
        sign, number = self.target.split()
        return "met" if COMPARE[sign](self.value, float(number)) else "NOT MET"

    def line(self) -> str:
        """For the terminal."""
        value = "–" if self.value is None else f"{self.value:.2f}"
        return f"{self.name:<62}{value:>9} {self.unit:<8}{self.target:<10}{self.verdict}".rstrip()


def measure(work: Callable[[], Iterable[Figure]]) -> int:
    """Print figures as they arrive; an `ErdaError` is one message and exit status 2."""
    try:
        for figure in work():
            print(figure.line(), flush=True)
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0
