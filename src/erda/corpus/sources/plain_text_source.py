"""Plain text whose entities are found by a list of names (longest match) or by a spaCy pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from erda.corpus.sources.source import CorpusRow, Limits, Source, Tally, pair_rows
from erda.text.spacy_tagger import Tagger


class PlainSource(Source):
    """Sentences of a text file; a sentence never spans two lines."""

    def __init__(self, path: Path, tagger: Tagger) -> None:
        super().__init__(path)
        self._tag = tagger

    def rows(self, number: int, unit: str, limits: Limits, tally: Tally) -> Iterator[CorpusRow]:
        """Rows of all sentences of a line."""
        for sentence in self._tag(unit):
            tally.read += 1
            yield from pair_rows(sentence, source=f"{self.path.name}:{number}", limits=limits, tally=tally)
