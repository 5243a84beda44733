"""The open-text benchmark's questions: every ordered pair of entities that share a sentence (docs/open-text.md)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from erda.types import Entity, Example, Span

DOCUMENTS = Path("corpus", "redocred-dev.json.gz")


@dataclass(frozen=True, slots=True)
class Question:
    """An ordered pair of entities in a sentence of a document, with the gold relations.

    `holds` are relations whose evidence includes the sentence. `ignored` are relations that the document states
    elsewhere, or without naming a sentence: an answer for them counts neither as right nor as wrong.
    """

    document: int
    sentence: int
    example: Example
    holds: frozenset[str]
    ignored: frozenset[str]
    types: tuple[str, str]  # annotated types of head and tail


def read_documents(data: Path) -> list[dict[str, Any]]:
    """Read the 500 documents in DocRED's format from the data folder."""
    with gzip.open(data / DOCUMENTS, "rt", encoding="utf-8") as file:
        documents: list[dict[str, Any]] = json.load(file)
    return documents


def questions_of(documents: Sequence[dict[str, Any]]) -> Iterator[Question]:
    """Yield the questions of all documents, sentence by sentence."""
    for number, document in enumerate(documents):
        stated: dict[tuple[int, int], set[str]] = defaultdict(set)
        evident: dict[tuple[int, int, int], set[str]] = defaultdict(set)
        for label in document["labels"]:
            pair = (label["h"], label["t"])
            stated[pair].add(label["r"])
            for sentence in label["evidence"]:
                evident[*pair, sentence].add(label["r"])
        for sentence, tokens in enumerate(document["sents"]):
            first = _first_mentions(document["vertexSet"], sentence)
            for head, tail in ((h, t) for h in first for t in first if h != t):
                if _overlap(first[head]["pos"], first[tail]["pos"]):
                    continue
                example = Example(tuple(tokens), _entity(first[head], tokens), _entity(first[tail], tokens))
                holds = frozenset(evident[head, tail, sentence])
                types = (first[head]["type"], first[tail]["type"])
                yield Question(number, sentence, example, holds, frozenset(stated[head, tail]) - holds, types)


def _first_mentions(entities: Sequence[Sequence[dict[str, Any]]], sentence: int) -> dict[int, dict[str, Any]]:
    """Map each entity of a sentence to its first mention there."""
    found = {}
    for number, mentions in enumerate(entities):
        here = [mention for mention in mentions if mention["sent_id"] == sentence]
        if here:
            found[number] = min(here, key=lambda mention: tuple(mention["pos"]))
    return found


def _entity(mention: dict[str, Any], tokens: Sequence[str]) -> Entity:
    start, end = mention["pos"]
    return Entity(" ".join(tokens[start:end]), Span(start, end))


def _overlap(one: Sequence[int], other: Sequence[int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
