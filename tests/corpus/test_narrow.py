import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build_model
from toy_corpus import erda_corpus, random_rows, row, toy_store
from toy_similarity import ToySimilarity

from erda.corpus import narrow
from erda.corpus.augment import Augmenter
from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.narrow import near_by_vectors, near_by_words, write_rows
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_index import build_index
from erda.corpus.vector_shards import ShardWorker, embed_corpus, process_embedder, vectors_folder
from erda.data.formats import example_from_json
from erda.errors import DataError, SettingsError
from erda.text.keys import EntityPair
from erda.types import Example

WORDS = [f"word{i}" for i in range(60)]


def various_rows(n: int, *, seed: int = 0) -> list[dict]:
    """Rows of different words, so that ties are rare."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        head, tail = rng.sample([f"Entity{i}" for i in range(12)], 2)
        rows.append(row(f"{head} {' '.join(rng.choices(WORDS, k=rng.randint(5, 14)))} {tail}", head, tail))
    return rows


SHOTS = [example_from_json({**one, "relation": "met", "id": f"s{i}"}) for i, one in enumerate(various_rows(6, seed=1))]


def augmenter(store: CorpusStore, model: ToySimilarity) -> Augmenter:
    return Augmenter(store, build_index(store, model), model)


def test_a_narrowed_corpus_gives_the_extras_of_the_whole_one(tmp_path: Path) -> None:
    model = ToySimilarity(dim=512)
    whole = augmenter(toy_store(tmp_path, various_rows(400)), model)
    rows = near_by_vectors(whole, SHOTS, top=40)
    assert 40 <= len(rows) < 400
    path = tmp_path / "near.jsonl.gz"
    write_rows(whole.store, rows, path)
    build_corpus([path], tmp_path / "near")
    near = augmenter(CorpusStore.open(tmp_path / "near"), model)
    assert len(near.store) == len(rows)
    settings = {"n_neighbours": 3, "match_threshold": 0.2, "search_matched": True}
    expected, found = (one.find(SHOTS, **settings) for one in (whole, near))
    said = [
        [(extra.example.tokens, extra.rule, extra.origin.id, round(extra.score, 2)) for extra in one.extras]
        for one in (expected, found)
    ]
    assert said[0], "nothing was found in the whole corpus"
    assert said[0] == said[1]


def test_every_sentence_of_a_pair_is_kept(tmp_path: Path) -> None:
    pairs = [row(f"Number {i} : Ada met Bob .", "Ada", "Bob") for i in range(30)]
    whole = augmenter(toy_store(tmp_path, [*pairs, *random_rows(50)]), ToySimilarity())
    shot = example_from_json({**row("Elsewhere Ada saw Bob", "Ada", "Bob"), "relation": "saw"})
    for rows in (near_by_vectors(whole, [shot], top=1), near_by_words(whole.store, [shot], top=1)):
        assert 30 <= len(rows) <= 31


def test_missing_examples_and_invalid_counts_raise(tmp_path: Path) -> None:
    whole = augmenter(toy_store(tmp_path, random_rows(20)), ToySimilarity())
    with pytest.raises(DataError):
        near_by_vectors(whole, [])
    with pytest.raises(SettingsError):
        near_by_vectors(whole, SHOTS, top=0)


def by_hand(store: CorpusStore, shot: Example) -> list[tuple[float, int]]:
    """Cosine of each row with an example by the definition, highest first."""

    def counts(example: Example) -> Counter[str]:
        first, second = sorted((example.head.span, example.tail.span))
        times = {i: 0 if first.start <= i < first.end or second.start <= i < second.end else 1 for i in range(99)}
        times |= dict.fromkeys(range(first.end, second.start), 2)
        found: Counter[str] = Counter()
        for i, token in enumerate(example.tokens):
            found[token.lower()] += times[i]
        return +found

    rows = [counts(example) for example in store.rows(range(len(store)))]
    n_with = Counter(word for one in rows for word in one)

    def vector(words: Counter[str]) -> dict[str, float]:
        weights = {word: math.log(1 + n) * math.log((1 + len(rows)) / (1 + n_with[word])) for word, n in words.items()}
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()}

    asked = vector(counts(shot))
    cosines = [sum(weight * asked.get(word, 0) for word, weight in vector(one).items()) for one in rows]
    return sorted(((cosine, row) for row, cosine in enumerate(cosines)), reverse=True)


@pytest.mark.parametrize("read", [10_000, 70])
def test_near_by_words_equals_its_definition(tmp_path: Path, read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "_FETCH_SIZE", read)
    monkeypatch.setattr(narrow, "_BATCH_SIZE", 4)
    store = toy_store(tmp_path, various_rows(300))
    expected = {row for shot in SHOTS for _, row in by_hand(store, shot)[:7]}
    pairs = {int(row) for rows in store.find([EntityPair.of(shot) for shot in SHOTS]) for row in rows}
    assert set(near_by_words(store, SHOTS, top=7).tolist()) == expected | pairs


def test_names_are_ignored_and_words_between_them_count_twice(tmp_path: Path) -> None:
    store = toy_store(
        tmp_path,
        [
            row("Long ago Eve founded Acme here", "Eve", "Acme"),
            row("Where it was founded Eve left Acme then", "Eve", "Acme"),
            row("Ada saw Bob today", "Ada", "Bob"),
            row("Eve drank tea with Bob", "Eve", "Bob"),
        ],
    )
    shot = example_from_json({**row("Ada Bob founded Carol", "Ada Bob", "Carol"), "relation": "founded"})
    kept = {top: [" ".join(one.tokens) for one in store.rows(near_by_words(store, [shot], top=top))] for top in (1, 9)}
    assert kept[1] == ["Long ago Eve founded Acme here"]
    assert len(kept[9]) == 2, "rows without a common word are left out"
    assert all("founded" in sentence for sentence in kept[9])


def test_the_examples_of_a_relation_share_its_neighbours(tmp_path: Path) -> None:
    whole = augmenter(toy_store(tmp_path, various_rows(300)), ToySimilarity(dim=512))
    few, many = SHOTS[:2], [replace(shot, relation="saw") for shot in SHOTS[2:]]
    apart = np.union1d(near_by_words(whole.store, few, top=8), near_by_words(whole.store, many, top=4))
    np.testing.assert_array_equal(near_by_words(whole.store, [*few, *many], top=8, per_relation=16), apart)
    for n_shared, n_each in ((1, 1), (12, 2), (17, 2), (600, 8)):
        shared = near_by_vectors(whole, SHOTS, top=8, per_relation=n_shared)
        np.testing.assert_array_equal(shared, near_by_vectors(whole, SHOTS, top=n_each))


def test_the_command_selects_by_words_without_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = toy_store(tmp_path, various_rows(60))
    examples = tmp_path / "shots.jsonl"
    examples.write_text("".join(json.dumps({**one, "relation": "met"}) + "\n" for one in various_rows(3, seed=5)))
    out = tmp_path / "near.jsonl.gz"
    arguments = ["narrow", store.folder, examples, "--by", "words", "--top", "4", "--out", out]
    assert erda_corpus(*arguments) == 0
    rows = near_by_words(store, [example_from_json(one) for one in various_rows(3, seed=5)], top=4)
    assert f"{len(rows)} of 60 rows are near 3 examples" in capsys.readouterr().out
    build_corpus([out], tmp_path / "near")
    assert len(CorpusStore.open(tmp_path / "near")) == len(rows)
    for invalid in (["--model", "minilm"], ["--per-relation", "0"]):
        with pytest.raises(SettingsError, match=invalid[0]):
            erda_corpus(*arguments, *invalid)


def test_the_command_selects_by_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = toy_store(tmp_path, random_rows(60))
    model = build_model(tmp_path / "tiny").path
    build_index(store, load_similarity(model))
    examples = tmp_path / "shots.jsonl"
    rows = [{**one, "relation": "met"} for one in random_rows(3, seed=5)]
    examples.write_text("".join(json.dumps(one) + "\n" for one in rows))
    out = tmp_path / "near.jsonl"
    arguments = ["narrow", str(store.folder), str(examples), "--top", "4", "--model", str(model), "--out", str(out)]
    assert erda_corpus(*arguments) == 0
    n_rows = len(out.read_text().splitlines())
    assert 4 <= n_rows <= 60
    assert f"{n_rows:,} of 60 rows are near 3 examples" in capsys.readouterr().out


def test_several_processes_give_the_vectors_of_one(tmp_path: Path) -> None:
    store = toy_store(tmp_path, random_rows(50))
    folder = build_model(tmp_path / "tiny").path
    model = load_similarity(folder)
    alone = embed_corpus(store, model, shard_rows=10).vectors(range(50))
    (vectors_folder(store.folder, model.fingerprint) / "journal.jsonl").write_text("")
    worker = ShardWorker(corpus=store.folder, digest=store.digest, model=str(folder), fingerprint=model.fingerprint)
    together = embed_corpus(store, model, shard_rows=10, embedder=process_embedder(worker, 2)).vectors(range(50))
    np.testing.assert_allclose(alone, together, atol=2e-3)  # half precision; threads sum in another order
