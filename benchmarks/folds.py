"""Folds: relations that an encoder must not have been trained on, if it is measured on them.

python benchmarks/folds.py        # writes benchmarks/folds.json from the data folder

A fold names the `relations` that are asked, and the Wikidata ids that are `held_out` of training: those relations, and
every relation that is connected to one of them in `INVERSES`. A training example is left out if its relation is held
out. A pair of entities for which a held-out relation is annotated is left out as well: it is neither an example of
another relation nor a pair without a relation.

redocred-A, redocred-B: all relations of redocred-dev in two halves. A relation and its inverses are in the same half;
the halves have about the same numbers of facts and of relations that the benchmark can ask.
fewrel-40: 40 of FewRel's 80 relations, none of which has an inverse among the other 40.
nota-16: the 16 relations of FewRel's published validation set. Training with this fold has fewer relations than
FewRel's own training set of 64, which holds inverses of the 16 (father, followed by, has part).

Ids: FewRel has them as `pid` in fewrel/relations.json, redoc41 in redoc41/relations.json; rows name them as `relation`.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from erda.files import data_folder, read_json, write_json

FILE = Path(__file__).with_name("folds.json")
SEED, N_TRIES = 0, 200_000
N_FEWREL = 40  # held out of 80
LEAST_POSITIVES = 10  # pairs with the relation that make a relation worth asking
SYMMETRIC = ("P26", "P190", "P460", "P3373", "P47", "P197", "P451", "P530", "P1327", "P1889", "P2652")
# Inverses by definition, and relations whose reversed pairs mostly have the other relation in Re-DocRED or FewRel.
INVERSES = {
    "P40": ("P22", "P25"),  # child: father, mother
    "P36": ("P1376",),  # capital: capital of
    "P150": ("P131", "P17"),  # contains: located in, country
    "P527": ("P361", "P463", "P179"),  # has part: part of, member of, part of the series
    "P155": ("P156", "P1366"),  # follows: followed by, replaced by
    "P1365": ("P1366",),  # replaces: replaced by
    "P355": ("P749", "P127"),  # subsidiary: parent organisation, owned by
    # notable work: author, creator, director, composer, performer, screenwriter, producer, lyrics by, architect, after
    "P800": ("P50", "P170", "P57", "P86", "P175", "P58", "P162", "P676", "P84", "P1877"),
    "P1056": ("P176", "P178"),  # product: manufacturer, developer
    "P674": ("P1441",),  # characters: present in work
    "P1344": ("P710", "P1923", "P1346", "P991"),  # participant of: participant, team, winner, successful candidate
    "P710": ("P607",),  # participant: conflict
    "P118": ("P1923",),  # league: participating team
    "P1001": ("P6", "P35", "P194"),  # applies to jurisdiction: head of government, head of state, legislature
    "P403": ("P974",),  # mouth of the watercourse: tributary
    "P206": ("P205",),  # next to body of water: basin country
    "P466": ("P551",),  # occupant: residence
    "P737": ("P738",),  # influenced by: influence of
    "P127": ("P1830",),  # owned by: owner of
}


def with_inverses(relations: Iterable[str]) -> list[str]:
    """Relations and everything that is connected to them, sorted by number."""
    found = set(relations)
    while (
        more := {
            other
            for one, others in INVERSES.items()
            for other in (one, *others)
            if found & {one, *others} and (one in found or other == one)
        }
        - found
    ):
        found |= more
    return sorted(found, key=lambda name: int(name[1:]))


def groups_of(relations: Collection[str]) -> list[list[str]]:
    """Relations in groups that must stay together."""
    return [
        list(one) for one in sorted({tuple(r for r in with_inverses([name]) if r in relations) for name in relations})
    ]


def counts_of(documents: Sequence[dict[str, Any]], *, in_sentence: bool) -> Counter[str]:
    """Facts of each relation; with `in_sentence`, pairs of mentions in a sentence of odd documents that is evidence."""
    found: Counter[str] = Counter()
    for number, document in enumerate(documents):
        places = [{mention["sent_id"] for mention in mentions} for mentions in document["vertexSet"]]
        for label in document["labels"]:
            here = places[label["h"]] & places[label["t"]] & set(label["evidence"])
            found[label["r"]] += (number % 2) * len(here) if in_sentence else 1
    return found


def halves(groups: Sequence[Sequence[str]], measures: Sequence[Counter[str]]) -> tuple[list[str], list[str]]:
    """Split groups so that both halves have about the same total of every measure."""
    shares = np.array([[sum(one[name] for name in group) / one.total() for one in measures] for group in groups])
    tries = np.random.default_rng(SEED).random((N_TRIES, len(groups))) < 0.5
    first = tries[np.abs(tries @ shares - 0.5).max(axis=1).argmin()]
    in_first, in_second = ([name for group in compress(groups, kept) for name in group] for kept in (first, ~first))
    return in_first, in_second


def written(data: Path) -> dict[str, Any]:
    """Everything that folds.json holds."""
    with gzip.open(data / "corpus" / "redocred-dev.json.gz", "rt", encoding="utf-8") as file:
        documents = json.load(file)
    taught = {one["pid"] for one in read_json(data / "redoc41" / "relations.json", list[dict[str, Any]])}
    facts, positives = counts_of(documents, in_sentence=False), counts_of(documents, in_sentence=True)
    asked = Counter({name: 1 for name in taught if positives[name] >= LEAST_POSITIVES})
    both = halves(groups_of(facts), (facts, positives, asked, Counter(list(facts))))
    fewrel = [one["pid"] for one in read_json(data / "fewrel" / "relations.json", list[dict[str, Any]])]
    groups = groups_of(fewrel)
    random.Random(SEED).shuffle(groups)
    some: list[str] = []
    for group in groups:
        some += group if len(some) + len(group) <= N_FEWREL else []
    none = read_json(data / "fewrel" / "validation_relations.json", list[str])
    folds = {"redocred-A": both[0], "redocred-B": both[1], "fewrel-40": some, "nota-16": none}
    return {
        "seed": SEED,
        "symmetric": SYMMETRIC,
        "inverses": INVERSES,
        "folds": {
            name: {"relations": sorted(own, key=lambda one: int(one[1:])), "held_out": with_inverses(own)}
            for name, own in folds.items()
        },
    }


if __name__ == "__main__":
    write_json(FILE, written(data_folder()))
