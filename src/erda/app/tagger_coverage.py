"""Relations whose entities the tagger rarely finds, such as drugs and diseases: `extract` cannot answer about them."""

from __future__ import annotations

from dataclasses import dataclass

from erda.app.entities import Finder
from erda.app.version import Version
from erda.text.spacy_tagger import type_of

MOST_EXAMPLES = 10  # per relation
LEAST_EXAMPLES = 2  # of a relation that is judged
LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Coverage:
    """The number of examples of a relation, and in how many of them a tagger finds both entities."""

    relation: str
    n_found: int
    n_examples: int

    def __str__(self) -> str:
        return f"both entities in {self.n_found} of {self.n_examples} examples of '{self.relation}'"


def rarely_found(version: Version, finder: Finder) -> list[Coverage]:
    """The relations whose examples a pipeline tags in less than half of the cases; empty where no pipeline runs."""
    tag = finder.of_tokens
    if tag is None:
        return []
    found = list[Coverage]()
    for known in version.state.known:
        examples = [one.example for one in known.lessons[:MOST_EXAMPLES]]
        tagged = zip(examples, tag([one.tokens for one in examples]), strict=True)
        n_found = sum(bool(type_of(one.head.span, tags) and type_of(one.tail.span, tags)) for one, tags in tagged)
        if len(examples) >= LEAST_EXAMPLES and n_found < LEAST_SHARE * len(examples):
            found.append(Coverage(known.relation.name, n_found, len(examples)))
    return found
