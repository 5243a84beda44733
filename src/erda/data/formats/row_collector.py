"""What all readers of examples share: what a file held, and how its rows are collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from erda.errors import DataError, unknown_name
from erda.text.reading import Faults
from erda.text.relation_names import readable_name
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


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a file: its line and how to read it, which gives an example, or in words why it is left out.

    `where` says more than the line does ("task 7: "); `number` is what it is called among duplicates, else its line.
    """

    line: int
    read: Callable[[], Example | str]
    where: str = ""
    number: int | None = None


RowReader = Callable[[Path, Faults], Iterator[SourceRow]]  # faults go to `Faults`


def read_rows(
    path: Path,
    format: str,
    rows_of: RowReader,
    expected: str,
    *,
    relations: Collection[str] | None = None,
    no_relation: Collection[str] = (),
    tick: Callable[[], object] = lambda: None,
) -> Reading:
    """What a file of a user held. A duplicate is kept once; both its lines are in `Reading.duplicates`.

    `relations` are the known relation ids; any other is a fault, and so is an id used twice. `tick` hears of each row.
    """
    rows = RowCollector(path, format, no_relation, once=True, relations=relations)
    for row in rows_of(path, rows.faults):
        rows.add(row.line, row.read, where=row.where, number=row.number)
        tick()
    return rows.reading(expected)


class RowCollector:
    """Collects the examples of a file row by row, and everything that is wrong with it.

    Examples that say the same (tokens, spans, relation) are counted; with `once` the first alone is kept.
    """

    def __init__(
        self,
        path: Path,
        format: str,
        no_relation: Collection[str] = (),
        *,
        once: bool = False,
        relations: Collection[str] | None = None,
    ) -> None:
        self.faults = Faults(path)
        self.n_rows = 0
        self._path, self._format, self._once, self._relations = path, format, once, relations
        self._ids: dict[str, int] = {}
        self._spelling = {readable_name(one): one for one in relations or ()}
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
            if self._once and isinstance(example, Example):
                example = self._checked(example, line)
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

    def _checked(self, example: Example, line: int) -> Example:
        """The example with its relation spelled as listed, or as in the first row that has it."""
        known, relation = self._relations, example.relation
        if relation is not None and not self.is_unrelated(relation) and (known is None or relation not in known):
            spelling = self._spelling.setdefault(readable_name(relation), relation)
            if known is not None and spelling not in known:
                raise DataError(_unlisted(relation, known))
            example = replace(example, relation=spelling)
        if self._ids.setdefault(example.id, line) != line:
            raise DataError(f"id {example.id!r} was already used on line {self._ids[example.id]}.")
        return example

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


def _unlisted(relation: str, relations: Collection[str]) -> str:
    if len(relations) > 100:
        return f"unknown relation {relation!r}; it is none of the {len(relations)} listed ones."
    message = unknown_name("relation", relation, relations)
    return message[0].lower() + message[1:]
