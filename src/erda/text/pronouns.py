"""English pronouns as mentions of entities, resolved to a name where one rule decides.

`with_pronouns` adds pronouns to the entities of a text, each with the type that it stands for. A pronoun is resolved to
a name (`Entity.resolved`) only if no other name competes:

- "who", "whom", "whose" and "which" refer to the name directly before them.
- "he", "she", "it" and their forms refer to the only fitting name in their sentence, before them, and in the sentence
  before; if there is none, in the two sentences before that. Names fit by type and gender, and the name must stand
  where a subject stands: no preposition before it.
- A name of unknown type is not an antecedent of "it" if pronouns around it stand for a person. An "it" that stands for
  time or weather has no antecedent.
- All other pronouns ("I", "they") and all doubtful ones stay unresolved. Nothing is resolved across paragraphs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from erda.types import Entity, Span

if TYPE_CHECKING:
    from erda.text.keys import TaggedSentence

PERSON = "PERSON"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def word_list(name: str) -> frozenset[str]:
    """Read a list of `word_lists.toml`."""
    return _words(_LISTS[name])


_LISTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("word_lists.toml").read_text(encoding="utf-8"))


_HE, _SHE, _IT = _words("he him his himself"), _words("she her hers herself"), _words("it its itself")
_THEY = _words("they them their theirs themselves")
_POSSESSIVE = _words("his her its their my our")
_RELATIVE = _words("who whom whose which")
_OF_A_PERSON = _HE | _SHE | _words("who whom i me my mine myself we us our ours ourselves")
_OF_ANYTHING = _IT | _THEY | _words("whose which")
MENTIONS: dict[str, str | None] = {**dict.fromkeys(_OF_A_PERSON, PERSON), **dict.fromkeys(_OF_ANYTHING)}
PRONOUNS = MENTIONS.keys() | _words("that this these those one you your yours")  # never names to look for
_CLASSES = {word: gender for gender, words in (("m", _HE), ("f", _SHE), ("n", _IT)) for word in words}
_PREPOSITIONS = word_list("prepositions")
_PLACED = ("in", "at", "near")  # a name after these is no person
_EXPLETIVE, _JUDGED, _TIME = (word_list(name) for name in ("expletive", "judged", "time"))
FARTHEST = 3  # sentences back to a name
_PARAGRAPH = re.compile(r"\n\s*\n")
_TITLES = dict.fromkeys(word_list("titles_of_men"), "m") | dict.fromkeys(word_list("titles_of_women"), "f")
_MEN, _WOMEN = word_list("men"), word_list("women")


def is_pronoun(name: str) -> bool:
    """Return whether a mention is a pronoun and not a name.

    >>> is_pronoun("He"), is_pronoun("IT"), is_pronoun("US"), is_pronoun("Hershey")
    (True, False, False, False)
    """
    return name.lower() in PRONOUNS and (name == name.lower() or name == name.capitalize())


def is_possessive(entity: Entity) -> bool:
    """Return whether a mention is a possessive pronoun that stands for no known name."""
    return not entity.resolved and is_pronoun(entity.name) and entity.name.lower() in _POSSESSIVE


def with_pronouns(text: str, sentences: Iterable[TaggedSentence]) -> Iterator[TaggedSentence]:
    """Yield the sentences of a text with their pronouns as further entities.

    >>> from erda.text.names import NameTagger
    >>> text = "Ada Lee is a pilot. She moved to Oslo."
    >>> _, second = with_pronouns(text, NameTagger({"Ada Lee": None, "Oslo": None})(text))
    >>> [(one.name, one.type, one.resolved) for one in second.entities]
    [('She', 'PERSON', 'Ada Lee'), ('Oslo', None, None)]
    """
    before: list[_Sentence] = []  # nearest last
    end = 0
    for sentence in sentences:
        if sentence.offsets and _PARAGRAPH.search(text, end, sentence.offsets[0][0]):
            before = []
        end = sentence.offsets[-1][1] if sentence.offsets else end
        names, mentions = [_Name.of(sentence.tokens, one) for one in sentence.entities], list(_mentions(sentence))
        own = _Sentence(names, any(one.type == PERSON for one in mentions))
        found = [_resolved(sentence.tokens, one, own, before) for one in mentions]
        entities = sorted((*sentence.entities, *found), key=lambda entity: entity.span)
        yield replace(sentence, entities=tuple(entities))
        known = {one.entity.name: one for each in (*before, own) for one in each.names}
        referred = [known[one.resolved] for one in found if one.resolved in known]
        before = [*before[1 - FARTHEST :], _Sentence([*names, *referred], own.has_people)]


def may_be_related(tokens: Sequence[str], head: Entity, tail: Entity) -> bool:
    """Return whether to ask about two mentions of a sentence.

    Not if one may stand for the other, and not if both are unresolved pronouns.
    """
    unnamed = [one for one in (head, tail) if is_pronoun(one.name)]
    if not unnamed:
        return True
    if len(unnamed) == 2 and not (head.resolved and tail.resolved):
        return False
    pronoun, other = unnamed[0], tail if unnamed[0] is head else head
    if len(unnamed) == 1 and pronoun.resolved is None and other.span < pronoun.span:
        word = pronoun.name.lower()
        return not (word in _THEY or (word in _CLASSES and _Name.of(tokens, other).fits(_CLASSES[word])))
    return not _same(head.resolved or head.name, tail.resolved or tail.name)


@dataclass(frozen=True, slots=True)
class _Name:
    """A named mention; `gender` is m, f, n (a thing) or empty if it is unknown."""

    entity: Entity
    gender: str
    is_subject: bool  # no preposition stands before it, or only in a phrase before a comma

    @classmethod
    def of(cls, tokens: Sequence[str], entity: Entity) -> _Name:
        start = entity.span.start
        before, first = tokens[start - 1].lower() if start else "", tokens[start].lower()
        gender = _TITLES.get(before) or _TITLES.get(first) or ("m" if first in _MEN else "f" if first in _WOMEN else "")
        if entity.type and not _is_person(entity) and gender and entity.span.end - start > 1:
            gender = ""  # of another type, but with a first name: it may be either
        else:
            is_placed = not gender and before in _PLACED
            gender = "n" if is_placed or (entity.type and not _is_person(entity)) else gender
        clause = list(takewhile(lambda word: word != ",", reversed(tokens[:start])))
        return cls(entity, gender, _PREPOSITIONS.isdisjoint(map(str.lower, clause)))

    def fits(self, gender: str) -> bool:
        """Whether a pronoun of this gender may stand for it; a name without type and gender may be anything."""
        return self.gender in ("", gender) and not (gender == "n" and _is_person(self.entity))


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The names of a sentence and those that its pronouns stand for; whether some pronoun stands for a person."""

    names: list[_Name]
    has_people: bool


def _mentions(sentence: TaggedSentence) -> Iterator[Entity]:
    """Yield the pronouns of a sentence that can stand for an entity, outside of its names."""
    tokens = sentence.tokens
    taken = {place for entity in sentence.entities for place in range(entity.span.start, entity.span.end)}
    for place, token in enumerate(tokens):
        word = token.lower()
        if place in taken or word not in MENTIONS or not is_pronoun(token):
            continue
        if (
            place
            and token[0].isupper()
            and tokens[place - 1].isalnum()
            and (word != "i" or tokens[place - 1][0].isupper())
        ):
            continue  # a numeral (Elizabeth I), or a word of a title (Leave It to Me)
        if word in _RELATIVE and (
            place == 0 or (word != "who" and not _named_before(tokens, place, sentence.entities))
        ):
            continue  # a question, or "in which case"
        if word == "it" and _is_expletive(tokens[place + 1 : place + 7]):
            continue
        yield Entity(token, Span(place, place + 1), type=MENTIONS[word])


def _is_expletive(words: Sequence[str]) -> bool:
    """Return whether the "it" before these words stands for nothing: "it was clear that", "it was a hard year"."""
    if not words or words[0] in _TIME:
        return bool(words)
    if words[0] not in _EXPLETIVE:
        return False
    return (
        "that" in words[1:]
        or (words[0] in ("took", "takes") and "to" in words)
        or not _JUDGED.isdisjoint(words[1:2])
        or not _TIME.isdisjoint(map(str.lower, words[1:4]))
    )


def _named_before(tokens: Sequence[str], place: int, entities: Iterable[Entity]) -> Entity | None:
    """Return the name directly before a relative pronoun; a comma and a preposition may stand between."""
    at = place - 1 if tokens[place - 1] in _PREPOSITIONS else place
    ends = {at, at - 1} if at and tokens[at - 1] == "," else {at}
    return next((one for one in entities if one.span.end in ends), None)


def _resolved(tokens: Sequence[str], pronoun: Entity, own: _Sentence, before: Sequence[_Sentence]) -> Entity:
    """Return a pronoun with the name that it stands for, if only one fits."""
    word, place = pronoun.name.lower(), pronoun.span.start
    if word in _RELATIVE:
        found = _named_before(tokens, place, (one.entity for one in own.names))
        names = [one for one in own.names if one.entity is found]
        fits = {"who": ("", "m", "f"), "whom": ("", "m", "f"), "which": ("", "n")}.get(word, ("", "m", "f", "n"))
        chosen = next((one for one in names if one.gender in fits), None)
        chosen = None if word == "which" and chosen and _is_person(chosen.entity) else chosen
    else:
        near = [one for one in own.names if one.entity.span.end <= place]
        near += before[-1].names if before else []
        groups = [near, *(one.names for one in reversed(before[:-1]))]
        has_people = any(one.has_people for one in (own, *before))
        chosen = _only_fitting(_CLASSES.get(word, ""), groups, has_people=has_people)
    if chosen is None:
        return pronoun
    return replace(pronoun, resolved=chosen.entity.name, type=pronoun.type or chosen.entity.type)


def _only_fitting(gender: str, groups: Iterable[Sequence[_Name]], *, has_people: bool) -> _Name | None:
    """Return the only name that fits in the first group of names with a fitting one.

    If pronouns around it stand for a person, a name of unknown type may be that person and is no "it".
    """
    for names in groups:
        if gender and (fitting := [one for one in names if one.fits(gender)]):
            longest = max(fitting, key=lambda one: len(one.entity.name))
            is_only = all(_same(one.entity.name, longest.entity.name) for one in fitting)
            all_fit = gender == "n" and len(names) == len(fitting) and not has_people
            is_sure = all_fit or any(one.gender or _is_person(one.entity) for one in fitting)
            is_subject = any(one.is_subject for one in fitting)
            return longest if is_only and is_sure and is_subject else None
    return None


def _is_person(entity: Entity) -> bool:
    return (entity.type or "").upper() in ("PERSON", "PER")


def _same(one: str, other: str) -> bool:
    """Return whether two names may be of one entity: all words of one are words of the other ("Lee", "Ada Lee")."""
    words, others = set(one.lower().split()), set(other.lower().split())
    return bool(words and others) and (words <= others or others <= words)
