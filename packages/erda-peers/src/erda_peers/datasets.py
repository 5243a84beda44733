"""Datasets to choose settings on: relations that no published test of a preset uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from erda.data.catalogue import DATASETS, Entry, Shape
from erda.data.dataset import Dataset
from erda.data.fewrel_dataset import fewrel_half, read_full, read_relations

FULL, REDOC41 = DATASETS["fewrel-full"], DATASETS["redoc41"]


def _load_search(folder: Path) -> Dataset:
    return fewrel_half(read_full(folder / "fewrel"), "fewrel-search", fresh=False)


def _load_redoc13(folder: Path) -> Dataset:
    whole, others = REDOC41.load(folder), {relation.id for relation in read_relations(folder / "fewrel")}
    relations = tuple(relation for relation in whole.relations if relation.id not in others)
    examples = whole.only(lambda example: example.relation not in others)
    return replace(examples, name="redoc13", relations=relations, unrelated=())


FEWREL_SEARCH = replace(
    FULL,
    about="the 40 relations of FewRel that are not in fewrel-fresh, to choose settings on",
    shape=Shape(way=10),
    load=_load_search,
)
REDOC13: Entry = replace(
    REDOC41,
    about="the 13 relations of redoc41 that FewRel lacks, to choose settings on",
    shape=Shape(way=4, first_way=5),
    load=_load_redoc13,
    needs=(*REDOC41.needs, *(need for need in FULL.needs if need.startswith("fewrel/relations.json|"))),
)
