"""What all readers of examples share: what a file held, and how its rows are collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from erda.errors import DataError
from erda.text.reading import Faults
from erda.types import Example

NO_RELATION = "no_relation"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file held.

    `unrelated` are the rows whose relation is null, `no_relation` or named as none, apart from `examples`.
    `candidates[i]` are the relations listed with example `i`, gold left out (published splits only).
    `duplicates` are pairs (line, line of the first occurrence). `left_out` counts rows by reason.
    """

    path: Path
    format: str
    examples: tuple[Example, ...] = field(repr=False)
    unrelated: tuple[Example, ...] = field(default=(), repr=False)
    candidates: tuple[tuple[str, ...], ...] | None = field(default=None, repr=False)
    duplicates: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples of each relation, the commonest first."""
        counts = Counter(str(example.relation) for example in self.examples)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class Rows:
    """Collects the examples of a file row by row, and everything that is wrong with it.

    Examples that say the same (tokens, spans, relation) are counted; with `once` the first alone is kept.
    """

    def __init__(self, path: Path, format: str, no_relation: Collection[str] = (), *, once: bool = False) -> None:
        self.faults = Faults(path)
        self.n_rows = 0
        self._path, self._format, self._once = path, format, once
        self._no_relation = {None, NO_RELATION, *no_relation}
        self._examples: list[Example] = []
        self._unrelated: list[Example] = []
        self._first: dict[tuple[object, ...], int] = {}
        self._duplicates: list[tuple[int, int]] = []
        self._left_out: Counter[str] = Counter()

    def is_unrelated(self, relation: str | None) -> bool:
        """Whether a row with this relation says that there is none, or that none is known."""
        return relation in self._no_relation

    def add(self, line: int, read: Callable[[], Example | str], *, number: int | None = None, where: str = "") -> None:
        """Add the example that `read` gives for a row, or count why it is left out; a fault is noted.

        `number` is what the row is called among duplicates, its line by default.
        """
        self.n_rows += 1
        try:
            example = read()
        except DataError as error:
            self.faults.add(line, f"{where}{error}")
            return
        if isinstance(example, str):
            self._left_out[example] += 1
            return
        unrelated = self.is_unrelated(example.relation)
        if self._once or not unrelated:
            number = line if number is None else number
            key = (example.tokens, example.head.span, example.tail.span, example.relation)
            if (first := self._first.setdefault(key, number)) != number:
                self._duplicates.append((number, first))
                if self._once:
                    return
        (self._unrelated if unrelated else self._examples).append(example)

    def reading(self, expected: str, candidates: tuple[tuple[str, ...], ...] | None = None) -> Reading:
        """What the file held; a `DataError` where anything was wrong, or where it held nothing of what is expected."""
        self.faults.raise_if_any()
        if not self.n_rows:
            raise DataError(f"{self._path}: the file is empty; expected {expected}.")
        return Reading(
            self._path,
            self._format,
            tuple(self._examples),
            tuple(self._unrelated),
            candidates,
            tuple(self._duplicates),
            self._left_out,
        )
