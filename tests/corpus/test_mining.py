from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from toy_corpus import random_rows, row, toy_store, write_rows

from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A corpus of two segments."""
    folder = tmp_path_factory.mktemp("mining")
    toy_store(folder, random_rows(300, n_entities=12))
    build_corpus(
        [write_rows(folder / "more.jsonl", random_rows(100, seed=1, n_entities=12))], folder / "corpus", add=True
    )
    return CorpusStore.open(folder / "corpus")


@pytest.fixture(scope="module")
def entities(store):
    return [(s.example.head.id, s.example.tail.id) for batch in store.batches() for s in batch]


def as_set(pairs):
    return set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


def test_positive_pairs_have_the_same_two_entities(store, entities):
    same = {(i, j) for i, j in permutations(range(len(entities)), 2) if entities[i] == entities[j]}
    mined = store.positive_pairs(seed=0, max_per_pair=1000)
    assert as_set(mined) <= same
    assert len(as_set(mined)) == len(mined)
    groups = {pair: entities.count(pair) for pair in set(entities)}
    assert len(mined) == sum(n - 1 for n in groups.values())  # a chain through each group
    assert set(mined.shared.tolist()) == {"both"}
    crossing = [(i, j) for i, j in as_set(mined) if (i < 300) != (j < 300)]
    assert crossing


def test_max_per_pair_and_limit(store, entities):
    mined = store.positive_pairs(seed=0, max_per_pair=1)
    drawn_from = [entities[i] for i in mined.first]
    assert len(set(drawn_from)) == len(drawn_from)
    few = store.positive_pairs(seed=0, max_per_pair=1, limit=10)
    assert len(few) == 10
    assert as_set(few) <= as_set(mined)


def test_hard_negatives_share_exactly_one_entity_in_the_same_role(store, entities):
    mined = store.hard_negatives(seed=0)
    for first, second, shared in zip(mined.first, mined.second, mined.shared, strict=True):
        same_head = entities[first][0] == entities[second][0]
        same_tail = entities[first][1] == entities[second][1]
        assert (same_head, same_tail) == (shared == "head", shared == "tail")
    assert set(mined.shared.tolist()) == {"head", "tail"}
    assert len(mined) > 1.9 * len(store)  # nearly every row has one of each


def test_anchors_are_first_in_their_pairs(store):
    anchors = np.arange(0, 400, 7)
    mined = store.hard_negatives(seed=3, anchors=anchors)
    assert set(mined.first.tolist()) == set(anchors.tolist())
    assert len(store.hard_negatives(seed=3, anchors=anchors, limit=5)) == 5


def test_the_seed_determines_the_pairs(store):
    for mine in (store.positive_pairs, store.hard_negatives):
        one, again, other = mine(seed=1, limit=50), mine(seed=1, limit=50), mine(seed=2, limit=50)
        assert one.first.tolist() == again.first.tolist()
        assert one.second.tolist() == again.second.tolist()
        assert as_set(one) != as_set(other)


def test_a_corpus_without_shared_entities_has_no_pairs(tmp_path):
    store = toy_store(tmp_path, [row("Anna knows Bob .", "Anna", "Bob"), row("Carl knows Dora .", "Carl", "Dora")])
    assert len(store.positive_pairs(seed=0)) == 0
    assert len(store.hard_negatives(seed=0)) == 0
