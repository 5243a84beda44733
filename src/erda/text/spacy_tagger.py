"""Entities and their types by a spaCy pipeline (extra `entities`), in text and in sentences that are already tokens.

Taught examples come as tokens with two marked entities. A mention gets the type of the tagged entity that overlaps it
most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from erda.errors import DataError, ModelError, SettingsError, require
from erda.files import first_line
from erda.text.keys import TaggedSentence
from erda.text.names import CapitalisedTagger
from erda.text.sentences import split_sentences, token_span, tokens_of, words_at
from erda.types import Entity, Example, Span

Tagger = Callable[[str], Iterator[TaggedSentence]]
BATCH_SIZE = 64
NUMBERS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
UNUSED = ("tok2vec", "tagger", "attribute_ruler", "lemmatizer", "parser")  # of the fetched pipeline: most of its time
_ARTICLE = re.compile(r"the\s+", re.IGNORECASE)
NO_SPACE_BEFORE = frozenset([".", ",", ";", ":", ")", "!", "?", "'s", "%", "n't", "''", "]", "-", "–", "/"])
NO_SPACE_AFTER = frozenset(["(", "[", "$", "``", "£", "#", "-", "–", "/"])


def load_pipeline(pipeline: str | Path) -> Any:
    """Load an installed pipeline by its name or folder, or the pipeline of `erda data get entities` by its path."""
    require("spacy")
    import spacy

    if isinstance(pipeline, str):
        try:
            return spacy.load(pipeline)
        except OSError:
            hint = "Give the folder of one, or run: erda data get entities, and name it: entities."
            raise SettingsError(f"spaCy has no pipeline {pipeline!r}. {hint}") from None
    try:
        fetched = spacy.load(pipeline, exclude=UNUSED)
        fetched.enable_pipe("senter")
    except Exception as error:  # spaCy raises arbitrary exceptions for a damaged folder
        remedy = "Run: erda data get entities, which verifies it."
        raise ModelError(f"{pipeline}: spaCy cannot load it ({first_line(error)}). {remedy}") from None
    return fetched


def document_sentences(document: Any, *, names_only: bool = False) -> Iterator[TaggedSentence]:
    """Yield the sentences of a `Doc`, of its own borders or of ours, with its entities.

    `names_only` leaves out numbers, dates, and the articles of names.
    """
    text = document.text
    named = (e for e in document.ents if not (names_only and e.label_ in NUMBERS))
    starts = ((e, names_only and _ARTICLE.match(e.text)) for e in named)
    entities = [(e.start_char + (the.end() if the else 0), e.end_char, e) for e, the in starts]
    if document.has_annotation("SENT_START"):
        borders = [(sentence.start_char, sentence.end_char) for sentence in document.sents]
    else:
        borders = list(split_sentences(text, [(start, end) for start, end, _ in entities]))
    for start, end in borders:
        offsets = tokens_of(text, start, end)
        if not offsets:
            continue  # spaCy turns a line break into a sentence
        mentions = tuple(
            Entity(" ".join(text[left:right].split()), span, one.kb_id_ or None, one.label_ or None)
            for left, right, one in entities
            if start <= left and right <= end and (span := token_span(offsets, left, right))
        )
        yield TaggedSentence(tuple(words_at(text, offsets)), mentions, tuple(offsets))


class Tag(NamedTuple):
    """An entity that a pipeline found: its tokens, the end excluded, and its type."""

    start: int
    end: int
    type: str


class SpacyTagger:
    """Tags texts and tokens with a loaded pipeline. Threads take turns: spaCy does not guarantee thread safety."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline, self._lock = pipeline, Lock()

    def __call__(self, text: str) -> Iterator[TaggedSentence]:
        """Yield the sentences of a text with their named entities."""
        return iter(self.texts([text])[0])

    def texts(self, texts: Sequence[str]) -> list[list[TaggedSentence]]:
        """Return the sentences and named entities of texts, without numbers and dates.

        Many texts take half the time of one after another. A pipeline that sets no sentence boundaries gets those of
        `split_sentences`.
        """
        for text in texts:
            if len(text) > (most := getattr(self._pipeline, "max_length", len(text))):
                size = f"the text has {len(text):,} characters"
                raise DataError(f"{size}; spaCy reads at most {most:,}: cut it at a line.")
        return [list(document_sentences(document, names_only=True)) for document in self._documents(texts)]

    def tokens(self, sentences: Iterable[Sequence[str]]) -> list[list[Tag]]:
        """Return the entities of sentences that are already tokens. Numbers and dates are entities as well."""
        from spacy.tokens import Doc

        vocab = self._pipeline.vocab
        documents = [
            Doc(vocab, words=[word if word.strip() else "_" for word in words], spaces=spaces_after(words))
            for words in sentences
        ]
        return [[Tag(one.start, one.end, one.label_) for one in found.ents] for found in self._documents(documents)]

    def _documents(self, given: Sequence[Any]) -> list[Any]:
        with self._lock:
            return list(self._pipeline.pipe(given, batch_size=BATCH_SIZE))


@lru_cache(maxsize=2)
def spacy_tagger(pipeline: str | Path) -> SpacyTagger:
    """Return the tagger of a pipeline (`load_pipeline`)."""
    return SpacyTagger(load_pipeline(pipeline))


TokenTagger = Callable[[Iterable[Sequence[str]]], list[list[Tag]]]


def typed_examples(examples: Sequence[Example], tag: TokenTagger) -> list[Example]:
    """Add types to the entities that have none; types that the user gave stay."""
    untyped = [i for i, one in enumerate(examples) if not (one.head.type and one.tail.type)]
    found = list(examples)
    for i, tags in zip(untyped, tag([examples[i].tokens for i in untyped]) if untyped else (), strict=True):
        one = examples[i]
        found[i] = replace(one, head=_typed(one.head, tags), tail=_typed(one.tail, tags))
    return found


def type_of(span: Span, tags: Sequence[Tag], *, offset: int = 0) -> str:
    """Return the type of the tag that overlaps a span most; "" if none does."""
    shared = [(min(tag.end, span.end + offset) - max(tag.start, span.start + offset), tag.type) for tag in tags]
    overlap, found = max(shared, key=lambda one: one[0], default=(0, ""))
    return found if overlap > 0 else ""


def with_capitals(text: str, sentence: TaggedSentence, capitals: CapitalisedTagger) -> TaggedSentence:
    """Add names by capital letters to those of a pipeline. Of overlapping ones the longest stays, with any type."""
    tags = [Tag(one.span.start, one.span.end, one.type or "") for one in sentence.entities]
    own = (_typed(one, tags) for one in capitals.entities(text, sentence.tokens, sentence.offsets))
    kept = list[Entity]()
    for one in sorted((*sentence.entities, *own), key=lambda one: (one.span.start - one.span.end, one.span)):
        if all(one.span.end <= other.span.start or other.span.end <= one.span.start for other in kept):
            kept.append(one)
    return replace(sentence, entities=tuple(sorted(kept, key=lambda one: one.span)))


def _typed(entity: Entity, tags: Sequence[Tag]) -> Entity:
    return entity if entity.type else replace(entity, type=type_of(entity.span, tags) or None)


def spaces_after(tokens: Sequence[str]) -> list[bool]:
    """Whether a space follows each token."""
    found, quoted = [], False
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        space = not (after in NO_SPACE_BEFORE or after.startswith("'") or token in NO_SPACE_AFTER)
        if token == '"':
            quoted = not quoted
            space = space and not quoted
        found.append(space and not (after == '"' and quoted))
    return found
