"""The pairs of entities of a text as questions, and the rows of their answers; part of every export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from erda.answers import Answer, Extraction, Pairs, TextPlace
from erda.errors import counted
from erda.text.keys import TaggedSentence, entity_key, ordered_pairs
from erda.text.marks import MOST_CHARACTERS, check_text
from erda.text.pronouns import may_be_related, with_pronouns
from erda.types import Example

PlainRow = dict[str, Any]
GIVEN, NAMES = "given", "names"  # the tagger's name where the user marked every mention, or named the entities
CAPITALS = "capitalised"
NO_ENTITY = "No entity was found in the text."
MOST_PAIRS = 10_000  # of a text


@dataclass(frozen=True, slots=True)
class Tagged:
    """Sentences with their entities, the tagger that found them, and how to get a better one."""

    sentences: tuple[TaggedSentence, ...]
    tagger: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PairQuestions:
    """The pairs of entities of a text that `extract` asks about, with their places in it."""

    examples: tuple[Example, ...]
    places: tuple[TextPlace, ...]
    tagger: str
    n_entities: int
    n_left_out: int
    hint: str = ""

    @classmethod
    def of(cls, text: str, tagged: Tagged, *, pronouns: bool = True, note: str = "") -> PairQuestions:
        """List the pairs of a tagged text; `note` is added to the hint."""
        is_asked = may_be_related if pronouns and tagged.tagger != GIVEN else None
        sentences = with_pronouns(text, tagged.sentences) if is_asked else iter(tagged.sentences)
        pairs, places, n_entities, n_left_out = list[Example](), list[TextPlace](), 0, 0
        for sentence, with_names in zip(sentences, tagged.sentences, strict=True):
            found = ordered_pairs(sentence.tokens, sentence.entities, most=MOST_PAIRS - len(pairs), is_asked=is_asked)
            is_long = sum(map(len, sentence.tokens)) > MOST_CHARACTERS // 4
            for one in found.examples if is_long else ():
                check_text(" ".join((*one.tokens, one.head.name, one.tail.name)))
            pairs += found.examples
            places += [
                TextPlace(*sentence.characters(one.head.span), *sentence.characters(one.tail.span))
                for one in found.examples
            ]
            n_entities += len({entity_key(one.name, one.id) for one in with_names.entities})
            n_left_out += found.n_left_out
        hint = " ".join(filter(None, ("" if n_entities else NO_ENTITY, tagged.hint, note)))
        return cls(tuple(pairs), tuple(places), tagged.tagger, n_entities, n_left_out, hint)

    def answered(self, answers: Iterable[Answer]) -> Extraction:
        """The extraction, given an answer to each example."""
        placed = tuple(replace(one, place=place) for one, place in zip(answers, self.places, strict=True))
        return Extraction(placed, self.tagger, self.n_entities, self.n_left_out, self.hint)


def rows_of_line(place: PlainRow, text: str, found: Extraction, pairs: Pairs = "likelier") -> Iterator[PlainRow]:
    """Yield the rows of a line of text, which begin with its `place`; the last says how many pairs were left out."""
    for one in found.kept(pairs):
        answer = one.to_json()
        given = text if len(text) <= MOST_CHARACTERS else None  # else a long line fills the disk
        yield {**place, "entities": found.tagger, **answer, "text": given, "sentence": answer["text"]}
    if found.n_left_out:
        n_pairs = counted(found.n_left_out, "pair")
        yield {**place, "error": f"{n_pairs} of entities left out: a line may have at most {MOST_PAIRS:,}; split it."}
