"""Entity types of sentences that are already tokens, by a spaCy pipeline (extra `entities`).

Taught examples come as tokens with two marked entities. A mention gets the type of the tagged entity that overlaps it
most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

from erda.types import Entity, Example, Span

NO_SPACE_BEFORE = frozenset([".", ",", ";", ":", ")", "!", "?", "'s", "%", "n't", "''", "]", "-", "–", "/"])
NO_SPACE_AFTER = frozenset(["(", "[", "$", "``", "£", "#", "-", "–", "/"])
BATCH_SIZE = 64


class Tag(NamedTuple):
    """An entity that a pipeline found: its tokens, the end excluded, and its type."""

    start: int
    end: int
    type: str


TokenTagger = Callable[[Iterable[Sequence[str]]], list[list[Tag]]]


def token_tagger(pipeline: Any, lock: Lock | None = None) -> TokenTagger:
    """Build a tagger of tokens from a loaded spaCy pipeline. Numbers and dates are entities as well."""
    lock = lock or Lock()

    def tag(sentences: Iterable[Sequence[str]]) -> list[list[Tag]]:
        from spacy.tokens import Doc

        documents = [
            Doc(pipeline.vocab, words=[word if word.strip() else "_" for word in words], spaces=_spaces(words))
            for words in sentences
        ]
        with lock:
            read = list(pipeline.pipe(documents, batch_size=BATCH_SIZE))
        return [[Tag(entity.start, entity.end, entity.label_) for entity in one.ents] for one in read]

    return tag


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


def _typed(entity: Entity, tags: Sequence[Tag]) -> Entity:
    return entity if entity.type else replace(entity, type=type_of(entity.span, tags) or None)


def _spaces(tokens: Sequence[str]) -> list[bool]:
    """Whether a space follows each token."""
    found, quoted = [], False
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        space = not (after in NO_SPACE_BEFORE or after.startswith("'") or token in NO_SPACE_AFTER)
        if token == '"':
            quoted = not quoted
            space = space and not quoted
        found.append(space and not (after == '"' and quoted))
    return found
