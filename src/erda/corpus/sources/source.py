"""Base class of sources: rows, counts of dropped rows, batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from erda.errors import SettingsError
from erda.text.keys import TaggedSentence, ordered_pairs
from erda.text.reading import Meter, read_lines
from erda.types import Entity, Example, Span

SHOWN_PLACES = 3


class CorpusRow(NamedTuple):
    """One sentence with one ordered entity pair. Spans count the tokens of `text`, separated by single spaces."""

    text: str
    head_name: str
    head_id: str | None
    head_start: int
    head_end: int
    tail_name: str
    tail_id: str | None
    tail_start: int
    tail_end: int
    relation: str | None
    source: str | None

    @classmethod
    def of(cls, example: Example) -> CorpusRow:
        """Convert an example; a token that contains spaces becomes several tokens."""
        words: list[str] = []
        places = [0]  # index of the first word of each token, and the end
        for token in example.tokens:
            words += token.split()
            places.append(len(words))
        pair = example.head, example.tail
        head, tail = (replace(one, span=Span(places[one.span.start], places[one.span.end])) for one in pair)
        return cls(" ".join(words), *_columns(head), *_columns(tail), example.relation, example.source)


def _columns(entity: Entity) -> tuple[str, str | None, int, int]:
    return entity.name, entity.id, entity.span.start, entity.span.end


@dataclass
class Tally:
    """Number of units read, and of dropped items by reason, with the first places of each reason."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, reason: str, place: str = "", n: int = 1) -> None:
        """Count dropped items."""
        if n:
            self.dropped[reason] = self.dropped.get(reason, 0) + n
        if place and n and len(shown := self.places.setdefault(reason, [])) < SHOWN_PLACES:
            shown.append(place)

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.read += other.read
        for reason, n in other.dropped.items():
            self.drop(reason, n=n)
        for reason, places in other.places.items():
            shown = self.places.setdefault(reason, [])
            shown += places[: SHOWN_PLACES - len(shown)]


class SourceBatch(NamedTuple):
    """Rows and counts of the units (lines, pages, documents) up to `position`, where reading can resume."""

    position: int
    rows: list[CorpusRow]
    tally: Tally
    redirects: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Maximum number of ordered pairs per sentence, and of tokens in a sentence."""

    max_pairs: int = 12
    max_tokens: int = 250

    def __post_init__(self) -> None:
        for name, value in (("max_pairs", self.max_pairs), ("max_tokens", self.max_tokens)):
            if value < 1:
                raise SettingsError(f"{name} must be at least 1, got {value}.")


class Source:
    """A file of sentences with entity pairs, read line by line; the line is the unit of `rows` and of `skip`."""

    batch_size = 1000

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meter = Meter()

    def batches(self, skip: int, limits: Limits) -> Iterator[SourceBatch]:
        """Yield batches in the order of the file, after the first `skip` units."""
        rows: list[CorpusRow] = []
        tally, number = Tally(), skip
        for number, unit in read_lines(self.path, skip=skip, meter=self.meter):
            if number <= skip:
                continue
            rows += self.rows(number, unit, limits, tally)
            if number % self.batch_size == 0:
                yield SourceBatch(number, rows, tally)
                rows, tally = [], Tally()
        yield SourceBatch(number, rows, tally)

    def rows(self, number: int, unit: Any, limits: Limits, tally: Tally) -> Iterable[CorpusRow]:
        """Rows of one unit; dropped items are counted in `tally`."""
        raise NotImplementedError


def pair_rows(sentence: TaggedSentence, *, source: str | None, limits: Limits, tally: Tally) -> Iterator[CorpusRow]:
    """Yield rows of at most `limits.max_pairs` ordered pairs of a sentence, the closest pairs first."""
    if len(sentence.tokens) > limits.max_tokens:
        tally.drop("sentence longer than max_tokens", source or "")
        return
    pairs = ordered_pairs(sentence.tokens, sentence.entities, most=limits.max_pairs, source=source)
    if pairs.n_entities < 2:
        tally.drop("sentence with fewer than two entities")
    tally.drop("pair over max_pairs", source or "", n=pairs.n_left_out)
    text = " ".join(sentence.tokens)
    for pair in pairs.examples:
        yield CorpusRow(text, *_columns(pair.head), *_columns(pair.tail), None, source)
