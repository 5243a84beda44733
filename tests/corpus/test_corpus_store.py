from collections import Counter
from pathlib import Path

import pytest
from toy_corpus import content, random_rows, row, toy_store, write_rows

from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.errors import DataError
from erda.text.keys import EntityPair, plain

PARIS = row(
    "In Iliad , Paris of Troy took Helen .",
    "Paris",
    "Helen",
    ids=("enwiki:Paris (mythology)", "enwiki:Helen of Troy"),
    source="enwiki:Iliad",
)
CHINA = row("The People 's Republic of China ( PRC ) grew .", "People 's Republic of China", "PRC", source="PRC")


@pytest.fixture(scope="module")
def rows():
    return random_rows(3000)


@pytest.fixture(scope="module")
def store(rows, tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("store"), rows)


@pytest.mark.parametrize(
    ("pair", "sources"),
    [
        (EntityPair("paris", "helen", "Q167646", "Q161482"), ["enwiki:Iliad"]),  # other ids, same names
        (EntityPair("PARIS", "Helen Of Troy"), ["enwiki:Iliad"]),  # name of the head, title of the tail
        (EntityPair("x", "y", "enwiki:Paris (mythology)", "enwiki:Helen of Troy"), ["enwiki:Iliad"]),  # ids alone
        (EntityPair("helen", "paris"), []),  # order matters
        (EntityPair("paris", "x", "enwiki:Paris (mythology)", "enwiki:Y"), []),  # only one entity matches
        (EntityPair("pari", "shelen"), []),
        (EntityPair("people 's republic of china", "prc"), ["PRC"]),
        (EntityPair("People's Republic of China", "prc"), ["PRC"]),
    ],
)
def test_pairs_match_by_name_title_or_id(tmp_path, pair, sources):
    store = toy_store(tmp_path, [PARIS, CHINA])
    (sentences,) = store.sentences_of([pair])
    assert [sentence.example.source for sentence in sentences] == sources
    assert [sentence.example.id for sentence in sentences] == [f"corpus:{sentence.row}" for sentence in sentences]


def test_sentences_of_equals_a_scan(store, rows):
    pairs = [EntityPair(f"entity{i}", f"ENTITY {j}") for i in range(6) for j in range(6)]
    found = store.sentences_of(pairs)
    for pair, sentences in zip(pairs, found, strict=True):
        expected = {
            " ".join(r["tokens"])
            for r in rows
            if (plain(r["head"]["name"]), plain(r["tail"]["name"])) == (plain(pair.head), plain(pair.tail))
        }
        assert {" ".join(s.example.tokens) for s in sentences} == expected
        assert len(sentences) == len(expected)
    assert sum(map(len, found)) > 50


def test_rows_are_sorted_and_fetched_in_any_order(store, rows):
    everything = content(store)
    assert [r[0] for r in everything] == list(range(len(rows)))
    pairs = [(r[2].id, r[3].id) for r in everything]
    assert pairs == sorted(pairs)
    asked = [2500, 3, 3, 0, 2999]
    assert [e.tokens for e in store.rows(asked)] == [everything[i][1] for i in asked]
    assert store.rows([]) == []
    for outside in (-1, 3000):
        with pytest.raises(DataError):
            store.rows([outside])
    assert [s.row for batch in store.batches(start=10, stop=35, size=10) for s in batch] == list(range(10, 35))


def test_counts_equal_those_of_the_rows(store, rows):
    pairs = Counter((r["head"]["id"], r["tail"]["id"]) for r in rows)
    assert store.counts() == {
        "rows": 3000,
        "sentences": len({" ".join(r["tokens"]) for r in rows}),
        "documents": 7,
        "pairs": len(pairs),
        "repeated pairs": sum(n > 1 for n in pairs.values()),
        "entities": 30,
    }
    assert [(Path(one.path).name, one.n_rows) for one in store.manifest.sources] == [("rows.jsonl", 3000)]


def test_the_digest_depends_on_the_rows_alone(tmp_path):
    rows = random_rows(50)
    first = toy_store(tmp_path / "a", rows)
    packed = write_rows(tmp_path / "b.jsonl.gz", rows)
    build_corpus([packed], tmp_path / "b")
    assert CorpusStore.open(tmp_path / "b").digest == first.digest
    assert toy_store(tmp_path / "c", rows[:-1]).digest != first.digest


def test_a_folder_without_a_corpus_is_rejected_with_a_remedy(tmp_path):
    with pytest.raises(DataError, match="erda corpus build"):
        CorpusStore.open(tmp_path)
    (tmp_path / "build").mkdir()
    with pytest.raises(DataError, match="not finished"):
        CorpusStore.open(tmp_path)
