"""Plain text: entities are found by a list of names (longest match) or by a spaCy pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from erda.corpus.sources.base import Batch, Limits, Meter, Row, Tally, numbered_lines, ordered_pairs
from erda.errors import DataError, SettingsError
from erda.text.sentences import split_sentences, token_span, tokens_of
from erda.types import Entity, Span

BATCH_LINES = 1000
Tagged = tuple[list[str], list[Entity]]
Tagger = Callable[[str], Iterator[Tagged]]
_NUMBERS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})


class PlainSource:
    """Sentences of a text file; a line never continues a sentence of the line before."""

    unit = "lines"

    def __init__(self, path: Path, tagger: Tagger) -> None:
        self.path = path
        self.meter = Meter()
        self._tag = tagger

    def batches(self, skip: int, limits: Limits) -> Iterator[Batch]:
        """Batches of lines after the first `skip`."""
        rows: list[Row] = []
        tally, number = Tally(), skip
        for number, line in numbered_lines(self.path, skip, self.meter):
            for tokens, mentions in self._tag(line):
                tally.read += 1
                place = f"{self.path.name}:{number}"
                rows += ordered_pairs(tokens, mentions, source=place, limits=limits, tally=tally)
            if number % BATCH_LINES == 0:
                yield Batch(number, rows, tally)
                rows, tally = [], Tally()
        yield Batch(number, rows, tally)


class NameTagger:
    """Finds the longest of the listed names at each place of a sentence; case counts."""

    def __init__(self, names: dict[str, str | None]) -> None:
        self._names: dict[tuple[str, ...], tuple[str, str | None]] = {}
        self._longest: dict[str, int] = {}  # first word -> number of words of the longest name that begins with it
        for name, entity_id in names.items():
            words = tuple(name[left:right] for left, right in tokens_of(name))
            self._names[words] = (name, entity_id)
            self._longest[words[0]] = max(self._longest.get(words[0], 0), len(words))

    def __call__(self, text: str) -> Iterator[Tagged]:
        """Sentences of a text with the listed names in them."""
        for start, end in split_sentences(text):
            tokens = [text[left:right] for left, right in tokens_of(text, start, end)]
            yield tokens, list(self._mentions(tokens))

    def _mentions(self, tokens: Sequence[str]) -> Iterator[Entity]:
        at = 0
        while at < len(tokens):
            for size in range(min(self._longest.get(tokens[at], 0), len(tokens) - at), 0, -1):
                if found := self._names.get(tuple(tokens[at : at + size])):
                    yield Entity(found[0], Span(at, at + size), found[1])
                    at += size - 1
                    break
            at += 1


def read_names(path: Path) -> dict[str, str | None]:
    """A list of entity names, one a line; an id may follow after a tab."""
    names: dict[str, str | None] = {}
    for _, line in numbered_lines(path):
        name, _, entity_id = line.strip().partition("\t")
        if tokens_of(name):
            names[" ".join(name.split())] = entity_id.strip() or None
    if not names:
        raise DataError(f"{path}: no names in it; expected one entity name a line, optionally a tab and an id.")
    return names


def spacy_tagger(model: str) -> Tagger:
    """A tagger by a spaCy pipeline (its sentences and its named entities, numbers and dates left out)."""
    try:
        import spacy
    except ImportError:
        raise SettingsError(
            "spaCy is not installed; run: pip install 'erda[spacy]' and python -m spacy download "
            f"{model}, or give a list of entity names with --names FILE."
        ) from None
    try:
        pipeline = spacy.load(model)
    except OSError:
        raise SettingsError(f"spaCy has no pipeline {model!r}; run: python -m spacy download {model}") from None
    return pipeline_tagger(pipeline)


def pipeline_tagger(pipeline: Callable[[str], Any]) -> Tagger:
    """A tagger by a loaded spaCy pipeline; one without sentence borders gets ours."""

    def tag(text: str) -> Iterator[Tagged]:
        document = pipeline(text)
        entities = [(e.start_char, e.end_char, e.text) for e in document.ents if e.label_ not in _NUMBERS]
        if document.has_annotation("SENT_START"):
            borders = [(sentence.start_char, sentence.end_char) for sentence in document.sents]
        else:
            borders = list(split_sentences(text, [(start, end) for start, end, _ in entities]))
        for start, end in borders:
            offsets = tokens_of(text, start, end)
            if not offsets:
                continue  # spaCy makes a sentence of a line's end
            mentions = [
                Entity(" ".join(name.split()), span)
                for left, right, name in entities
                if start <= left and right <= end and (span := token_span(offsets, left, right))
            ]
            yield [text[left:right] for left, right in offsets], mentions

    return tag
