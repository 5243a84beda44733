"""Sources of sentences with entity pairs: tagged JSONL, plain text, and Wikipedia dumps (`wikipedia.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple

from pydantic_core import from_json

from erda.corpus.corpus_store import CorpusRow, entity_columns
from erda.data.entity_model import GET, NAME, model_folder
from erda.data.formats.jsonl_examples import example_from_json
from erda.errors import DataError, SettingsError
from erda.fields import Count, Fraction, Settings
from erda.text.keys import TaggedSentence, ordered_pairs
from erda.text.names import NameTagger
from erda.text.reading import Meter, read_lines, read_names
from erda.text.spacy_tagger import Tagger, spacy_tagger

SHOWN_PLACES = 3


class BuildSettings(Settings):
    """Settings of a corpus build. `names` or `spacy` find the entities of plain text."""

    format: Literal["", "jsonl", "wikipedia", "text"] = ""  # default: by the file's name
    names: str = ""  # file of entity names
    spacy: str = ""  # spaCy pipeline
    max_pairs: Count = 12  # ordered pairs per sentence, the closest first
    max_tokens: Count = 250  # longer sentences are dropped
    exclude_overlap: Fraction = 0.5  # share of word 8-grams that makes a near-duplicate; 0 accepts near-duplicates
    workers: Count = 1  # processes that parse wikitext
    memory: str = "2GB"  # for sorting


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
    """Rows and counts of the units (lines, pages) up to `position`, where reading can resume."""

    position: int
    rows: list[CorpusRow]
    tally: Tally
    redirects: Mapping[str, str] = MappingProxyType({})


class Source:
    """A file of sentences with entity pairs, read line by line; the line is the unit of `rows` and of `skip`."""

    batch_size = 1000

    def __init__(self, path: Path, settings: BuildSettings) -> None:
        self.path, self.settings = path, settings
        self.meter = Meter()

    def batches(self, skip: int) -> Iterator[SourceBatch]:
        """Yield batches in the order of the file, after the first `skip` units."""
        rows: list[CorpusRow] = []
        tally, number = Tally(), skip
        for number, unit in read_lines(self.path, skip=skip, meter=self.meter):
            rows += self.rows(number, unit, tally)
            if number % self.batch_size == 0:
                yield SourceBatch(number, rows, tally)
                rows, tally = [], Tally()
        yield SourceBatch(number, rows, tally)

    def rows(self, number: int, unit: str, tally: Tally) -> Iterable[CorpusRow]:
        """Rows of one unit; dropped items are counted in `tally`."""
        raise NotImplementedError


def pair_rows(
    sentence: TaggedSentence, *, source: str | None, settings: BuildSettings, tally: Tally
) -> Iterator[CorpusRow]:
    """Yield rows of at most `max_pairs` ordered pairs of a sentence, the closest pairs first."""
    if len(sentence.tokens) > settings.max_tokens:
        tally.drop("sentence longer than max_tokens", source or "")
        return
    pairs = ordered_pairs(sentence.tokens, sentence.entities, most=settings.max_pairs, source=source)
    if pairs.n_entities < 2:
        tally.drop("sentence with fewer than two entities")
    tally.drop("pair over max_pairs", source or "", n=pairs.n_left_out)
    text = " ".join(sentence.tokens)
    for pair in pairs.examples:
        yield CorpusRow(text, *entity_columns(pair.head), *entity_columns(pair.tail), None, source)


# -- tagged JSONL ------------------------------------------------------------------------------------------------------


class JsonlSource(Source):
    """Rows of a JSONL file, one entity pair per line; invalid lines are counted, with their line numbers."""

    batch_size = 20_000

    def rows(self, number: int, unit: str, tally: Tally) -> list[CorpusRow]:
        """Row of a line."""
        if not unit.strip():
            return []
        tally.read += 1
        place = f"{self.path.name}:{number}"
        try:
            row = _row(from_json(unit))
        except ValueError as error:
            tally.drop("invalid JSON", f"{place}: {error}")
        except DataError as error:
            tally.drop("invalid row", f"{place}: {error}")
        else:
            if row.text.count(" ") < self.settings.max_tokens:
                return [row]
            tally.drop("sentence longer than max_tokens", place)
        return []


def _row(value: Any) -> CorpusRow:
    """Convert a well-formed row directly, four times as fast; `example_from_json` converts or rejects all others."""
    with suppress(TypeError, KeyError, ValueError, AttributeError):
        tokens, head, tail = value["tokens"], value["head"], value["tail"]
        (start, end), (next_start, next_end) = sorted((head["span"], tail["span"]))
        text = " ".join(tokens)
        fits = 0 <= start < end <= next_start < next_end <= len(tokens) and text.split() == tokens
        words = (head["name"], head.get("id"), tail["name"], tail.get("id"), value.get("relation"), value.get("source"))
        typed = {*map(type, words)} <= {str, NoneType} and {*map(type, (start, end, next_start, next_end))} == {int}
        if fits and typed and words[0] and words[2]:
            head_name, head_id, tail_name, tail_id, *others = (word or None for word in words)
            return CorpusRow._make(
                (text, head_name, head_id, *head["span"], tail_name, tail_id, *tail["span"], *others)
            )
    return CorpusRow.of(example_from_json(value))


# -- plain text --------------------------------------------------------------------------------------------------------


class PlainSource(Source):
    """Sentences of a text file, whose entities a tagger finds; a sentence never spans two lines."""

    def __init__(self, path: Path, settings: BuildSettings) -> None:
        super().__init__(path, settings)
        self._tag: Tagger
        if settings.names:
            self._tag = NameTagger(read_names(Path(settings.names)))
        elif settings.spacy:
            self._tag = spacy_tagger((model_folder() if settings.spacy == NAME else None) or settings.spacy)
        else:
            raise SettingsError(
                f"{path}: plain text has no entity marks; give a list of entity names with --names FILE, or a spaCy "
                f"pipeline with --spacy MODEL ('{GET}' fetches one: --spacy {NAME})."
            )

    def rows(self, number: int, unit: str, tally: Tally) -> Iterator[CorpusRow]:
        """Rows of all sentences of a line."""
        for sentence in self._tag(unit):
            tally.read += 1
            yield from pair_rows(sentence, source=f"{self.path.name}:{number}", settings=self.settings, tally=tally)


# -- all formats -------------------------------------------------------------------------------------------------------


def _wikipedia(path: Path, settings: BuildSettings) -> Source:
    from erda.corpus.wikipedia import WikipediaSource

    return WikipediaSource(path, settings)


SOURCES: dict[str, Callable[[Path, BuildSettings], Source]] = {
    "jsonl": JsonlSource,
    "wikipedia": _wikipedia,
    "text": PlainSource,
}
_BY_ENDING = {".jsonl": "jsonl", ".xml": "wikipedia", ".txt": "text"}


def open_source(path: Path, settings: BuildSettings) -> Source:
    """Open a file as a source, in `settings.format` or in the format of its name (compressed or not)."""
    endings = [ending for ending in path.suffixes if ending not in (".gz", ".bz2")]
    kind = settings.format or _BY_ENDING.get(endings[-1] if endings else "")
    if kind is None:
        raise SettingsError(
            f"{path}: unknown format; expected a name in {', '.join(_BY_ENDING)} (also .gz, .bz2), or --set format="
            f"{', '.join(SOURCES)}."
        )
    return SOURCES[kind](path, settings)
