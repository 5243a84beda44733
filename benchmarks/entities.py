"""Entities that are found in documents, and the facts between them: each finder against the annotation.

    erda data get entities
    python benchmarks/entities.py          # names that each finder finds, exactly and by overlap
    python benchmarks/entities.py facts    # triples of `extract`: 5 relations taught by 5 sentences

reads $ERDA_DATA/corpus/redocred-dev.json.gz: 500 documents in DocRED's format. Words are joined as in normal text.
`names`: numbers and dates are left out; an annotated one is no name, and a finding that overlaps one does not count.
`facts` reads the odd documents (docs/open-text.md) and keeps its table in results/open/facts.jsonl.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

import opentext_data as data
from erda.answers import Answer
from erda.app.entities import TAGGERS, find_tagger
from erda.app.extractor import Extractor
from erda.benchmark.run.loop import commit
from erda.encoders import build_encoder
from erda.encoders.contract import Encoder
from erda.encoders.frozen import FrozenCache
from erda.text.marks import Mark
from erda.text.spacy_tagger import spaces_after
from erda.types import Task
from opentext import keep, print_table
from opentext_documents import Draws
from opentext_score import Row, Taught, means

NUMBERS = ("TIME", "NUM")
DATES = ("P569", "P570", "P571", "P577", "P585")  # relations to dates, which no finder looks for
Place = tuple[int, int]  # characters, the end excluded


class Fact(NamedTuple):
    """A relation between two entities, by their numbers, for which a sentence is evidence."""

    sentence: int
    head: int
    relation: str
    tail: int


@dataclass(frozen=True)
class Annotated:
    """A document as a text. `mentions`: sentence and entity of each place, and whether it is a number or date."""

    number: int
    text: str
    mentions: Sequence[tuple[Place, int, int, bool]]
    facts: frozenset[Fact]
    stated: frozenset[tuple[int, str, int]]

    @cached_property
    def marks(self) -> list[Mark]:
        """The first mention of each entity in a sentence; the id is "document sentence entity"."""
        found: dict[str, Mark] = {}
        for (start, end), sentence, entity, _ in sorted(self.mentions):
            key = f"{self.number} {sentence} {entity}"
            found.setdefault(key, Mark(start, end, id=key, type=types().get((self.number, sentence, entity))))
        return list(found.values())

    def matches(self, answer: Answer, relation: str) -> Iterator[tuple[Fact, bool]]:
        """Possible facts whose mentions an answer overlaps, and whether its places are exactly theirs."""
        place = answer.place
        if place is None:
            return
        ends = (place.head_start, place.head_end), (place.tail_start, place.tail_end)
        heads, tails = ([one for one in self.mentions if overlapping(end, [one[0]])] for end in ends)
        for head, sentence, h, _ in heads:
            for tail, other, t, _ in tails:
                if sentence == other and h != t:
                    yield Fact(sentence, h, relation, t), (head, tail) == ends

    def score(self, answers: Iterable[Answer], relations: Collection[str]) -> np.ndarray:
        """Counts, exact and by overlap, [2, 4]: right answers, answers, found facts, facts.

        An answer about a fact that the document states, but not by this sentence, does not count.
        """
        facts = {fact for fact in self.facts if fact.relation in relations}
        right, n_answers, found = [0, 0], 0, (set[Fact](), set[Fact]())
        for answer, relation in ((one, relation) for one in answers for relation in one.relations):
            matches = list(self.matches(answer, relation))
            hits = {fact for fact, exact in matches if exact} & facts, {fact for fact, _ in matches} & facts
            if hits[1] or not any(fact[1:] in self.stated for fact, _ in matches):
                n_answers += 1
                for way in (0, 1):
                    right[way] += bool(hits[way])
                    found[way].update(hits[way])
        return np.array([[right[way], n_answers, len(found[way]), len(facts)] for way in (0, 1)])


@cache
def types() -> dict[tuple[int, int, int], str]:
    """Types of the first mentions by document, sentence and entity, as in docs/open-text.md."""
    places = {
        (number, mention["sent_id"], *mention["pos"]): entity
        for number, document in enumerate(data.read_documents())
        for entity, mentions in enumerate(document["vertexSet"])
        for mention in mentions
    }
    found = {}
    for one, typed in zip(data.dev(), data.part("dev"), strict=True):
        for end in (typed.head, typed.tail):
            if end.type:
                key = one.document, one.sentence, places[one.document, one.sentence, end.span.start, end.span.end]
                found[key] = end.type
    return found


def annotated(number: int, document: dict[str, Any]) -> Annotated:
    """Join the words of a document, and place its mentions and facts."""
    text, places = "", dict[tuple[int, int], Place]()
    for row, words in enumerate(document["sents"]):
        for column, (word, space) in enumerate(zip(words, spaces_after(words), strict=True)):
            places[row, column] = len(text), len(text) + len(word)
            text += word + (" " if space or column == len(words) - 1 else "")
    mentions, holding = list[tuple[Place, int, int, bool]](), defaultdict[int, set[int]](set)
    for entity, some in enumerate(document["vertexSet"]):
        for mention in some:
            row, (start, end) = mention["sent_id"], mention["pos"]
            place = places[row, start][0], places[row, end - 1][1]
            mentions.append((place, row, entity, mention["type"] in NUMBERS))
            holding[row].add(entity)
    labels = [(one["h"], one["r"], one["t"], one["evidence"]) for one in document.get("labels", ())]
    facts = frozenset(Fact(row, h, r, t) for h, r, t, rows in labels for row in rows if {h, t} <= holding[row])
    return Annotated(number, text, mentions, facts, frozenset((h, r, t) for h, r, t, _ in labels))


def documents() -> list[Annotated]:
    """All documents of redocred-dev."""
    return [annotated(number, one) for number, one in enumerate(data.read_documents())]


def overlapping(place: Place, others: Iterable[Place]) -> bool:
    """Return whether a place shares a character with another."""
    return any(place[0] < other[1] and other[0] < place[1] for other in others)


# -- names ------------------------------------------------------------------------------------------------------------


def figures(texts: Sequence[Annotated]) -> Iterator[tuple[str, int, list[float]]]:
    """Yield each finder, its number of findings, and precision and recall: exact, then by overlap."""
    for asked in TAGGERS:
        os.environ["ERDA_TAGGER"] = asked
        finder, counts = find_tagger(), [0] * 5  # findings, names, equal ones, findings and names that overlap
        for tagged, one in zip(finder.many([one.text for one in texts], None), texts, strict=True):
            names = {place for place, _, _, is_number in one.mentions if not is_number}
            numbers = {place for place, _, _, is_number in one.mentions if is_number}
            every = {one.characters(entity.span) for one in tagged.sentences for entity in one.entities}
            found = {place for place in every if place in names or not overlapping(place, numbers)}
            hits = [overlapping(place, names) for place in found], [overlapping(place, found) for place in names]
            new = len(found), len(names), len(found & names), sum(hits[0]), sum(hits[1])
            counts = [a + b for a, b in zip(counts, new, strict=True)]
        n_found, n_names, n_equal, n_right, n_covered = counts
        shares = [n_equal / n_found, n_equal / n_names, n_right / n_found, n_covered / n_names]
        yield finder.name, n_found, shares


def names(options: argparse.Namespace) -> None:
    """Print a line for each finder."""
    print("finder                           found   exact P     R   overlap P     R")
    for name, n_found, shares in figures(documents()[: options.documents or 500]):
        print(f"{name:32} {n_found:5}   " + "  ".join(f"{100 * one:7.1f}" for one in shares))


# -- facts ------------------------------------------------------------------------------------------------------------


def taught_extractor(folder: str, encoder: Encoder, taught: Sequence[Taught]) -> Extractor:
    """Teach a new extractor in a folder."""
    extractor = Extractor.open(folder, encoder=encoder)
    examples = tuple(example for one in taught for example in one.examples)
    extractor.teach_many(Task(0, tuple(one.relation for one in taught), examples))
    return extractor


def facts_of(texts: Sequence[Annotated], encoder: Encoder, taught: Sequence[Taught], finder: str) -> Row:
    """Precision and recall of `Extractor.extract` over some documents, in percent; `given`: annotated entities."""
    os.environ["ERDA_TAGGER"] = "both" if finder == "given" else finder
    relations, counts = {one.relation.id for one in taught}, np.zeros((2, 4))
    with tempfile.TemporaryDirectory() as folder:
        extractor = taught_extractor(folder, encoder, taught)
        for one in texts:
            entities = one.marks if finder == "given" else None
            counts += one.score(extractor.extract(one.text, entities, pronouns=False).found, relations)
    shares = 100 * counts[:, ::2] / np.maximum(counts[:, 1::2], 1)
    columns = ("exact precision", "exact recall", "overlap precision", "overlap recall")
    return dict(zip(columns, map(float, shares.ravel()), strict=True)) | {"answers": float(counts[0, 1])}


def facts(options: argparse.Namespace) -> None:
    """Print and keep precision and recall of triples for each finder, and for annotated entities."""
    texts = documents()[1::2][: options.documents or 250]
    encoder, found = build_encoder("open", cache=FrozenCache()), defaultdict[str, list[Row]](list)
    for taught in Draws(left_out=DATES).draws("all", options.relations, options.shots, options.draws):
        for finder in (*TAGGERS, "given"):
            found[finder].append(facts_of(texts, encoder, taught, finder))
    drawn = {"documents": len(texts), "relations": options.relations, "shots": options.shots, "draws": options.draws}
    rows = [{"finder": finder} | drawn | means(own) for finder, own in found.items()]
    print_table(rows)
    about = {"encoder": encoder.spec.name, "fingerprint": encoder.spec.fingerprint, "fold": "all"}
    keep("facts", rows, about | {"commit": commit(), "seed": 0})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    commands = {"names": names, "facts": facts}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=commands, default="names")
    parser.add_argument("--documents", type=int, help="number of documents (default: all)")
    parser.add_argument("--relations", type=int, default=5, help="of a draw (default: %(default)s)")
    parser.add_argument("--shots", type=int, default=5, help="sentences that teach a relation (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=10, help="of relations and sentences (default: %(default)s)")
    options = parser.parse_args(arguments)
    commands[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
