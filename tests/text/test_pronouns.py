"""Pronouns: which are mentions, of what type, and the name they are resolved to."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from erda.text.keys import TaggedSentence, ordered_pairs
from erda.text.names import CapitalisedTagger, NameTagger
from erda.text.pronouns import is_pronoun, may_be_related, with_pronouns
from erda.types import Entity, Span

TYPES = {
    "Ada Lovelace": "PERSON",
    "Lovelace": "PERSON",
    "Charles Babbage": "PERSON",
    "Zuko Lee": "PERSON",
    "Kim Park": "PERSON",
    "London": "GPE",
    "Oslo": "GPE",
    "Acme": "ORG",
    "Initech": "ORG",
}


def sentences(text: str) -> list[TaggedSentence]:
    """The sentences of a text with its pronouns; names carry their types."""
    tagged = [
        replace(one, entities=tuple(replace(name, type=TYPES[name.name]) for name in one.entities))
        for one in NameTagger(dict.fromkeys(TYPES))(text)
    ]
    return list(with_pronouns(text, tagged))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada Lovelace was born in London. She never left.", [("She", "Ada Lovelace")]),
        ("Ada Lovelace wrote it down. Lovelace died. Her work stayed.", [("it", None), ("Her", "Lovelace")]),
        ("Ada Lovelace met Charles Babbage. He was old. Her letters amused him.", [("He", "Charles Babbage")]),
        ("Zuko Lee met Kim Park. He left.", [("He", None)]),  # a competitor
        ("Zuko Lee left Oslo. Kim Park says he is in London.", [("he", None)]),
        ("Zuko Lee left. He is old. He moved to Oslo. He is there.", [("He", "Zuko Lee")] * 3),
        ("Acme is old. It is based in Oslo.", [("It", "Acme")]),
        ("Acme bought Initech. It is based in Oslo.", [("It", None)]),
        ("Ada Lovelace left. It fell.", [("It", None)]),  # a person is no "it"
        ("They lived with Zuko Lee. He left.", [("They", None), ("He", None)]),  # no subject
        ("In 1990, Zuko Lee left. He is old.", [("He", "Zuko Lee")]),
        ("Acme likes the song Leave It to Zuko Lee.", []),  # a word of a title
        ("Acme grew. It was clear that Initech would fail.", []),  # stands for nothing
        ("Ada Lovelace, who lived in London, wrote.", [("who", "Ada Lovelace")]),
        ("They sued Acme, which is based in Oslo.", [("They", None), ("which", "Acme")]),
        ("Acme, of which Zuko Lee is the head, grew.", [("which", "Acme")]),
        ("Who founded Acme? In which city?", []),  # questions
        ("My uncle, who lives in Oslo, knows us.", [("My", None), ("who", None), ("us", None)]),
        ("Elizabeth I met Zuko Lee. I met him.", [("I", None), ("him", "Zuko Lee")]),  # a numeral
        ("Ada Lovelace died.\n\nShe is remembered.", [("She", None)]),  # another paragraph
        ("Ada Lovelace died. A. B. C is here. Rain. Snow. She is remembered.", [("She", None)]),  # too far
        ("Acme grew near Oslo. The bank failed through Initech. It closed.", [("It", None)]),  # "through": no subject
        ("Zuko Lee joined Acme in 1990. It was a hard year.", []),
        ("Zuko Lee joined Acme. It rained.", []),
        ("Ada Lovelace lived in Kim Park. She left.", [("She", "Ada Lovelace")]),  # a person is in no other
    ],
)  # fmt: skip
def test_a_pronoun_is_resolved_only_to_the_single_fitting_name(
    text: str, expected: list[tuple[str, str | None]]
) -> None:
    found = [(one.name, one.resolved) for own in sentences(text) for one in own.entities if is_pronoun(one.name)]
    assert found[: len(expected)] == expected
    if not expected:
        assert found == []


def test_no_pronoun_of_our_own_texts_is_resolved_to_a_wrong_name() -> None:
    wrong, n_right = [], 0
    lines = Path(__file__).with_name("pronoun_texts.txt").read_text(encoding="utf-8").splitlines()
    for marked in (line for line in lines if not line.startswith("#")):
        parts = re.split(r"\{(\w+)=([^}]*)\}", marked)
        text, gold = parts[0], dict[int, str]()
        for word, name, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            gold[len(text)] = name
            text += word + rest
        for sentence in with_pronouns(text, CapitalisedTagger()(text)):
            for one in sentence.entities:
                name = gold.get(sentence.characters(one.span)[0])
                if one.resolved and name is not None:
                    n_right += (is_right := bool(name) and (one.resolved in name or name in one.resolved))
                    wrong += [] if is_right else [(one.name, one.resolved, text)]
    assert wrong == []
    assert n_right >= 55


def test_a_pronoun_has_the_type_it_stands_for() -> None:
    second = sentences("Acme grew. It hired people, and they liked her.")[1]
    assert [(one.name, one.type) for one in second.entities] == [("It", "ORG"), ("they", None), ("her", "PERSON")]
    assert [second.tokens[one.span.start] for one in second.entities] == ["It", "they", "her"]


def test_pairs_of_an_entity_with_itself_or_of_two_unknowns_are_not_asked() -> None:
    tokens = ["Ada", ",", "who", "met", "him", ",", "left", "her", "house", "in", "Oslo"]
    ada = Entity("Ada", Span(0, 1))
    who = Entity("who", Span(2, 3), resolved="Ada")
    him, her = Entity("him", Span(4, 5), resolved="Bob"), Entity("her", Span(7, 8))
    oslo = Entity("Oslo", Span(10, 11))
    pairs = ordered_pairs(tokens, [ada, who, him, her, oslo], is_asked=may_be_related).examples
    asked = {(one.head.name, one.tail.name) for one in pairs}
    ada_or_who = {("Ada", "him"), ("Ada", "Oslo"), ("who", "him"), ("who", "Oslo")}  # Ada may be "her"
    forwards = ada_or_who | {("him", "Oslo"), ("her", "Oslo")}
    assert asked == forwards | {(tail, head) for head, tail in forwards}
