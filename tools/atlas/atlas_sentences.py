"""One sentence of `atlas`: a pattern with its slots filled, and the spans of the two entities."""

from __future__ import annotations

import random

from atlas_patterns import Content, Pattern, tokenize
from erda.types import Entity, Example, Span

OPENING_SHARE = 0.2
CLOSING_SHARE = 0.2
YEARS = (1921, 2019)
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
WOMANS_WORDS = {
    "he": "she", "his": "her", "him": "her", "son": "daughter", "brother": "sister", "husband": "wife",
    "nephew": "niece", "godson": "goddaughter", "godfather": "godmother", "widower": "widow",
}  # fmt: skip

Fact = tuple[str, str]  # the names of head and tail


def write_sentence(
    content: Content, pattern: Pattern, fact: Fact, rng: random.Random, *, example_id: str, source: str | None
) -> Example:
    """The pattern about the fact: years and numbers drawn, sometimes an opening or closing phrase around it."""
    tokens: list[str] = []
    spans: dict[str, Span] = {}
    names = {"head": fact[0], "tail": fact[1]}
    opened = pattern.opens and rng.random() < OPENING_SHARE
    if opened:
        tokens.extend(rng.choice(content.openings))
    for index, part in enumerate(pattern.parts):
        if isinstance(part, tuple):
            tokens.extend((_lower_first(part[0]), *part[1:]) if opened and index == 0 else part)
        elif part in names:
            start = len(tokens)
            tokens.extend(tokenize(names[part]))
            spans[part] = Span(start, len(tokens))
        else:
            tokens.append(_fill(content, part, names, rng))
    if pattern.closes and not opened and rng.random() < CLOSING_SHARE:
        tokens[-1:] = (*rng.choice(content.closings), tokens[-1])
    head, tail = (Entity(names[role], spans[role], f"atlas:{names[role]}") for role in ("head", "tail"))
    return Example(tuple(tokens), head, tail, None, example_id, source)


def _fill(content: Content, slot: str, names: dict[str, str], rng: random.Random) -> str:
    if slot == "year":
        return str(rng.randint(*YEARS))
    if slot == "month":
        return rng.choice(MONTHS)
    if slot == "number":
        return rng.choice(NUMBERS)
    role, _, word = slot.partition(".")
    if content.genders[names[role]] == "man":
        return word
    womans = WOMANS_WORDS[word.lower()]
    return womans.capitalize() if word[0].isupper() else womans


def _lower_first(word: str) -> str:
    return word[0].lower() + word[1:]
