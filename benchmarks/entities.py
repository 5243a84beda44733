"""How many annotated names of documents each entity finder finds, exactly and by overlap (docs/teaching.md).

    erda data get entities
    python benchmarks/entities.py

reads $ERDA_DATA/corpus/redocred-dev.json.gz: 500 documents in DocRED's format. Numbers and dates are left out: an
annotated one is no name, and a finding that overlaps one does not count. Words are joined as in normal text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from erda.app.entities import TAGGERS, find_tagger
from erda.files import data_folder
from erda.text.spacy_tagger import spaces_after

DOCUMENTS = "corpus/redocred-dev.json.gz"
NUMBERS = ("TIME", "NUM")
Place = tuple[int, int]  # characters, the end excluded


def text_of(document: dict[str, Any]) -> tuple[str, set[Place], set[Place]]:
    """Return the text of a document, the places of its names, and those of its numbers and dates."""
    text, places = "", dict[tuple[int, int], Place]()
    for row, words in enumerate(document["sents"]):
        for column, (word, space) in enumerate(zip(words, spaces_after(words), strict=True)):
            places[row, column] = len(text), len(text) + len(word)
            text += word + (" " if space or column == len(words) - 1 else "")
    names, numbers = set[Place](), set[Place]()
    for mention in (one for entity in document["vertexSet"] for one in entity):
        row, (start, end) = mention["sent_id"], mention["pos"]
        place = places[row, start][0], places[row, end - 1][1]
        (numbers if mention["type"] in NUMBERS else names).add(place)
    return text, names, numbers


def overlapping(place: Place, others: Iterable[Place]) -> bool:
    """Return whether a place shares a character with another."""
    return any(place[0] < other[1] and other[0] < place[1] for other in others)


def figures(documents: Sequence[dict[str, Any]]) -> Iterator[tuple[str, int, list[float]]]:
    """Yield each finder, its number of findings, and precision and recall: exact, then by overlap."""
    read = [text_of(one) for one in documents]
    for asked in TAGGERS:
        os.environ["ERDA_TAGGER"] = asked
        finder, counts = find_tagger(), [0] * 5  # findings, names, equal ones, findings and names that overlap
        for tagged, (_, names, numbers) in zip(finder.many([text for text, *_ in read], None), read, strict=True):
            every = {one.characters(entity.span) for one in tagged.sentences for entity in one.entities}
            found = {place for place in every if place in names or not overlapping(place, numbers)}
            hits = [overlapping(place, names) for place in found], [overlapping(place, found) for place in names]
            new = len(found), len(names), len(found & names), sum(hits[0]), sum(hits[1])
            counts = [a + b for a, b in zip(counts, new, strict=True)]
        n_found, n_names, n_equal, n_right, n_covered = counts
        shares = [n_equal / n_found, n_equal / n_names, n_right / n_found, n_covered / n_names]
        yield finder.name, n_found, shares


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each finder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=500, help="number of documents")
    options = parser.parse_args(arguments)
    print("finder                           found   exact P     R   overlap P     R")
    documents = json.loads(gzip.decompress((data_folder() / DOCUMENTS).read_bytes()))
    for name, n_found, shares in figures(documents[: options.documents]):
        print(f"{name:32} {n_found:5}   " + "  ".join(f"{100 * one:7.1f}" for one in shares))
    return 0


if __name__ == "__main__":
    sys.exit(main())
