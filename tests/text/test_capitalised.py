"""Entities by capital letters, and the words that never are one."""

from dataclasses import replace

import pytest

from erda.text.names import CapitalisedTagger, NameTagger
from erda.text.spacy_tagger import with_capitals
from erda.types import Entity, Span


def names(text: str, tagger: CapitalisedTagger | None = None) -> list[str]:
    return [entity.name for sentence in (tagger or CapitalisedTagger())(text) for entity in sentence.entities]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tesla was founded by Martin Eberhard.", ["Tesla", "Martin Eberhard"]),
        ("He sold it in May 2003 to Elon Musk, who lives in Austin, Texas.", ["Elon Musk", "Austin", "Texas"]),
        ("In 1876 Ann of Oslo joined the University of Oslo.", ["Ann", "Oslo", "University of Oslo"]),
        ("O'Brien met Jean-Luc Picard on Monday - Ada too.", ["O'Brien", "Jean-Luc Picard", "Ada"]),
        ("Ludwig van Beethoven's house stands in Bonn.", ["Ludwig van Beethoven", "Bonn"]),
        ("The crew of Apollo 11 met President Nixon. The President smiled.", ["Apollo 11", "President Nixon"]),
        ("However, AT&T hired Dr. Lee in the U.S. last year.", ["AT&T", "Lee", "U.S."]),
        ("Das Café in Zürich gehört É. Zola.", ["Das Café", "Zürich", "É", "Zola"]),
        ("DeepMind sold MySQL and the iPhone to VMware at pH 7 and 5 kHz.", ["DeepMind", "MySQL", "iPhone", "VMware"]),
        ("nothing here has a capital letter", []),
        ("I met her; They knew Him. Who? That is It.", []),
    ],
)
def test_runs_of_capitalised_words(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_offsets_lead_back_to_the_text() -> None:
    text = "  Ann  B. Lee-Smith\tleft   New\u00a0York.  Then   she met Zoë in Rome."
    found = [
        (entity.name, text[slice(*sentence.characters(entity.span))])
        for sentence in CapitalisedTagger()(text)
        for entity in sentence.entities
    ]
    assert [name for name, _ in found] == ["Ann B. Lee-Smith", "New York", "Zoë", "Rome"]
    assert all(" ".join(mention.split()) == name for name, mention in found)


def test_listed_names_win_over_runs() -> None:
    tagger = CapitalisedTagger(NameTagger({"insulin": "Q7240673", "New York": None, "York City": None}))
    assert names("Ann moved to New York City with insulin.", tagger) == ["Ann", "New York", "insulin"]


def test_names_are_added_to_those_of_a_trained_tagger_and_the_longest_stays() -> None:
    text = "Ann Lee of DeepMind left the bank of Oslo ."
    (plain,) = CapitalisedTagger()(text)
    found = [Entity("Lee", Span(1, 2), type="PERSON"), Entity("bank of Oslo", Span(6, 9), type="ORG")]
    (both,) = [with_capitals(text, replace(plain, entities=tuple(found)), CapitalisedTagger())]
    assert [(one.name, one.type) for one in both.entities] == [
        ("Ann Lee", "PERSON"),
        ("DeepMind", None),
        ("bank of Oslo", "ORG"),
    ]
