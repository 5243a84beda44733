"""A tagger that finds entities and their types with a spaCy pipeline (extra `entities`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from erda.errors import DataError, ModelError, SettingsError, not_installed, require
from erda.files import first_line
from erda.text.pairs import TaggedSentence
from erda.text.sentences import split_sentences, token_span, tokens_of, words_at
from erda.types import Entity

Tagger = Callable[[str], Iterator[TaggedSentence]]
BatchTagger = Callable[[Sequence[str]], list[list[TaggedSentence]]]
BATCH_SIZE = 64
NUMBERS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
UNUSED = ("tagger", "attribute_ruler", "lemmatizer", "parser")  # of the fetched pipeline: three quarters of its time


def spacy_tagger(pipeline: str | Path) -> Tagger:
    """Build a tagger from a pipeline (`load_pipeline`)."""
    return pipeline_tagger(load_pipeline(pipeline))


def load_pipeline(pipeline: str | Path) -> Any:
    """Load an installed pipeline by its name or folder, or the pipeline of `erda data get entities` by its path."""
    if isinstance(pipeline, Path):
        return _fetched(pipeline)
    try:
        import spacy
    except ImportError:
        raise SettingsError(not_installed(["spacy"])) from None
    try:
        return spacy.load(pipeline)
    except OSError:
        raise SettingsError(
            f"spaCy has no pipeline {pipeline!r}. Give the folder of one, or run: erda data get entities, and name "
            "it: entities."
        ) from None


def _fetched(folder: Path) -> Any:
    require("spacy")
    import spacy

    try:
        pipeline = spacy.load(folder, exclude=UNUSED)
        pipeline.enable_pipe("senter")
    except Exception as error:  # spaCy raises arbitrary exceptions for a damaged folder
        raise ModelError(
            f"{folder}: spaCy cannot load it ({first_line(error)}). Run: erda data get entities, which verifies it."
        ) from None
    return pipeline


def pipeline_tagger(pipeline: Callable[[str], Any], lock: Lock | None = None) -> Tagger:
    """Build a tagger from a loaded pipeline: its sentences and named entities, without numbers and dates.

    A pipeline that sets no sentence boundaries gets those of `split_sentences`. Threads take turns.
    """
    lock = lock or Lock()  # spaCy does not guarantee thread safety

    def tag(text: str) -> Iterator[TaggedSentence]:
        _check_length(pipeline, text)
        with lock:
            document = pipeline(text)
        yield from _sentences(document, text)

    return tag


def batch_tagger(pipeline: Any, lock: Lock) -> BatchTagger:
    """Build a tagger of many texts, which takes half the time of one text after another."""

    def tag(texts: Sequence[str]) -> list[list[TaggedSentence]]:
        for text in texts:
            _check_length(pipeline, text)
        with lock:
            documents = list(pipeline.pipe(texts, batch_size=BATCH_SIZE))
        return [list(_sentences(document, text)) for document, text in zip(documents, texts, strict=True)]

    return tag


def _check_length(pipeline: Any, text: str) -> None:
    if len(text) > (most := getattr(pipeline, "max_length", len(text))):
        raise DataError(f"the text has {len(text):,} characters; spaCy reads at most {most:,}: cut it at a line.")


def _sentences(document: Any, text: str) -> Iterator[TaggedSentence]:
    entities = [(e.start_char, e.end_char, e.text, e.label_) for e in document.ents if e.label_ not in NUMBERS]
    if document.has_annotation("SENT_START"):
        borders = [(sentence.start_char, sentence.end_char) for sentence in document.sents]
    else:
        borders = list(split_sentences(text, [(start, end) for start, end, *_ in entities]))
    for start, end in borders:
        offsets = tokens_of(text, start, end)
        if not offsets:
            continue  # spaCy turns a line break into a sentence
        mentions = tuple(
            Entity(" ".join(name.split()), span, type=label or None)
            for left, right, name, label in entities
            if start <= left and right <= end and (span := token_span(offsets, left, right))
        )
        yield TaggedSentence(tuple(words_at(text, offsets)), mentions, tuple(offsets))
