"""Entities found in plain text by a list of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from erda.errors import DataError
from erda.text.pairs import TaggedSentence
from erda.text.reading import read_lines
from erda.text.sentences import split_sentences, tokens_of, words_at, words_of
from erda.types import Entity, Span


class NameTagger:
    """Finds listed names in sentences, longest match first, case-sensitive. `names` maps each name to an id or None.

    >>> tag = NameTagger({"New York": "Q60", "York": None, "Ann": None})
    >>> [(entity.name, entity.id) for sentence in tag("Ann left New York.") for entity in sentence.entities]
    [('Ann', None), ('New York', 'Q60')]
    """

    def __init__(self, names: Mapping[str, str | None]) -> None:
        self._names: dict[tuple[str, ...], tuple[str, str | None]] = {}
        self._longest: dict[str, int] = {}  # first word -> number of words in the longest name that starts with it
        for name, entity_id in names.items():
            words = tuple(words_of(name))
            if not words:
                raise DataError(f"the name {name!r} has no word.")
            self._names[words] = (name, entity_id)
            self._longest[words[0]] = max(self._longest.get(words[0], 0), len(words))

    def __call__(self, text: str) -> Iterator[TaggedSentence]:
        """Yield the sentences of a text with the listed names in them."""
        for start, end in split_sentences(text):
            offsets = tuple(tokens_of(text, start, end))
            tokens = tuple(words_at(text, offsets))
            yield TaggedSentence(tokens, tuple(self.entities(tokens)), offsets)

    def entities(self, tokens: Sequence[str]) -> Iterator[Entity]:
        """Yield the listed names among tokens, from left to right, without overlaps."""
        at = 0
        while at < len(tokens):
            for size in range(min(self._longest.get(tokens[at], 0), len(tokens) - at), 0, -1):
                if found := self._names.get(tuple(tokens[at : at + size])):
                    yield Entity(found[0], Span(at, at + size), found[1])
                    at += size - 1
                    break
            at += 1


def read_names(path: Path) -> dict[str, str | None]:
    """Read a list of entity names, one per line; an id may follow after a tab."""
    names: dict[str, str | None] = {}
    for _, line in read_lines(path):
        name, _, entity_id = line.strip().partition("\t")
        if words_of(name):
            names[" ".join(name.split())] = entity_id.strip() or None
    if not names:
        raise DataError(f"{path}: no names in it; expected one entity name per line, optionally a tab and an id.")
    return names
