"""Entities in plain text, found without a model: by a list of names, or by capital letters (English)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from erda.errors import DataError
from erda.text.keys import TaggedSentence
from erda.text.pronouns import is_pronoun, word_list
from erda.text.sentences import split_sentences, tokens_of, words_at, words_of
from erda.types import Entity, Span

_TITLES = word_list("titles")
_DATES = word_list("dates")
_COMMON = word_list("common")  # words that start sentences but not names
_ROLES = word_list("roles")  # no names by themselves
_LINKS = word_list("links")
_BEFORE_OF = word_list("before_of")  # "University of Oslo" is one name, "Ann of Oslo" two


class NameTagger:
    """Finds listed names in sentences, longest match first, case-sensitive. `names` maps each name to an id or None.

    >>> tag = NameTagger({"New York": "Q60", "York": None, "Ann": None})
    >>> [(entity.name, entity.id) for sentence in tag("Ann left New York.") for entity in sentence.entities]
    [('Ann', None), ('New York', 'Q60')]
    """

    def __init__(self, names: Mapping[str, str | None]) -> None:
        self.names, self._names = names, dict[tuple[str, ...], tuple[str, str | None]]()
        self._longest: dict[str, int] = {}  # first word -> number of words in the longest name that starts with it
        for name, entity_id in names.items():
            words = tuple(words_of(name))
            if not words:
                raise DataError(f"the name {name!r} has no word.")
            self._names[words] = (name, entity_id)
            self._longest[words[0]] = max(self._longest.get(words[0], 0), len(words))

    def __call__(self, text: str) -> Iterator[TaggedSentence]:
        """Yield the sentences of a text with the listed names in them."""
        for tokens, offsets in _split(text):
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


def _split(text: str) -> Iterator[tuple[tuple[str, ...], tuple[tuple[int, int], ...]]]:
    """Yield the tokens of each sentence, and their characters."""
    for start, end in split_sentences(text):
        offsets = tuple(tokens_of(text, start, end))
        yield tuple(words_at(text, offsets)), offsets


class CapitalisedTagger:
    """Finds runs of capitalised words, and `names` anywhere; entities have no type.

    >>> tag = CapitalisedTagger()
    >>> text = "In 1876 the University of Oslo hired Dr. Ann B. Lee-Smith from New York."
    >>> [entity.name for sentence in tag(text) for entity in sentence.entities]
    ['University of Oslo', 'Ann B. Lee-Smith', 'New York']
    """

    def __init__(self, names: NameTagger | None = None) -> None:
        self._names = names

    def __call__(self, text: str) -> Iterator[TaggedSentence]:
        """Yield the sentences of a text with their entities."""
        for tokens, offsets in _split(text):
            yield TaggedSentence(tokens, tuple(self.entities(text, tokens, offsets)), offsets)

    def entities(self, text: str, tokens: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[Entity]:
        """Return the names among the tokens of a sentence, from left to right, without overlaps."""
        listed = tuple(self._names.entities(tokens)) if self._names else ()
        taken = {place for entity in listed for place in range(entity.span.start, entity.span.end)}
        runs = (
            Entity(" ".join(text[offsets[span.start][0] : offsets[span.end - 1][1]].split()), span)
            for span in _runs(tokens, offsets)
            if taken.isdisjoint(range(span.start, span.end))
        )
        return sorted((*listed, *runs), key=lambda entity: entity.span)


def _runs(tokens: Sequence[str], offsets: Sequence[tuple[int, int]]) -> Iterator[Span]:
    at = 0
    while at < len(tokens):
        if not _starts_name(tokens[at]):
            at += 1
            continue
        end = at + 1
        while size := _more(tokens, offsets, end):
            end += size
        if end < len(tokens) and tokens[end].isdecimal() and tokens[end - 1].lower() not in _DATES:
            end += 1  # Apollo 11
        if not all(word.lower() in _ROLES for word in tokens[at:end]):
            yield Span(at, end)
        at = end


def _starts_name(word: str) -> bool:
    lower = word.lower()
    is_other = (
        (lower in _COMMON and word == word.capitalize()) or lower in _TITLES or lower in _DATES or is_pronoun(word)
    )
    return _is_capitalised(word) and not is_other


def _is_capitalised(word: str) -> bool:
    """Return whether a word has a capital: its first letter, or one inside a longer word (iPhone; not pH, kHz)."""
    return word[0].isupper() or (len(word) > 3 and word.isalpha() and word != word.lower())


def _more(tokens: Sequence[str], offsets: Sequence[tuple[int, int]], at: int) -> int:
    """Return the number of tokens from `at` that continue the name before them."""
    if at >= len(tokens):
        return 0
    word = tokens[at]
    if word[0].isupper() and word.lower() not in _DATES:
        return 1
    if at + 1 >= len(tokens) or not tokens[at + 1][0].isupper():
        return 0
    is_joined = offsets[at - 1][1] == offsets[at][0] and offsets[at][1] == offsets[at + 1][0]
    if word in ("-", "'", "’"):
        return 2 if is_joined else 0  # Jean-Luc, O'Brien
    if word not in _LINKS or (word == "of" and tokens[at - 1].lower() not in _BEFORE_OF):
        return 0
    return 2
