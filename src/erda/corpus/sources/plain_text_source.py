"""Plain text whose entities are found by a list of names (longest match) or by a spaCy pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from erda.corpus.sources.source import CorpusRow, Limits, Source, Tally, pair_rows
from erda.errors import SettingsError
from erda.text.pairs import TaggedSentence
from erda.text.sentences import split_sentences, token_span, tokens_of
from erda.types import Entity

Tagger = Callable[[str], Iterator[TaggedSentence]]
_NUMBERS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})


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


def spacy_tagger(model: str) -> Tagger:
    """Load a spaCy pipeline as a tagger: its sentences, and its named entities without numbers and dates."""
    try:
        import spacy
    except ImportError:
        raise SettingsError(
            "spaCy is not installed; run: pip install 'erda[entities]' and python -m spacy download "
            f"{model}, or give a list of entity names with --names FILE."
        ) from None
    try:
        pipeline = spacy.load(model)
    except OSError:
        raise SettingsError(f"spaCy has no pipeline {model!r}; run: python -m spacy download {model}") from None
    return pipeline_tagger(pipeline)


def pipeline_tagger(pipeline: Callable[[str], Any]) -> Tagger:
    """Turn a loaded spaCy pipeline into a tagger; without sentence boundaries of its own it uses erda's."""

    def tag(text: str) -> Iterator[TaggedSentence]:
        document = pipeline(text)
        entities = [(e.start_char, e.end_char, e.text) for e in document.ents if e.label_ not in _NUMBERS]
        if document.has_annotation("SENT_START"):
            borders = [(sentence.start_char, sentence.end_char) for sentence in document.sents]
        else:
            borders = list(split_sentences(text, [(start, end) for start, end, _ in entities]))
        for start, end in borders:
            offsets = tokens_of(text, start, end)
            if not offsets:
                continue  # spaCy returns a line break as a sentence
            mentions = tuple(
                Entity(" ".join(name.split()), span)
                for left, right, name in entities
                if start <= left and right <= end and (span := token_span(offsets, left, right))
            )
            yield TaggedSentence(tuple(text[left:right] for left, right in offsets), mentions)

    return tag
