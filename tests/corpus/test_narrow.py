import json
import random
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build_model
from toy_corpus import erda_corpus, random_rows, row, toy_store
from toy_similarity import ToySimilarity

from erda.corpus.augment import Augmenter
from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.narrow import near_rows, write_rows
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_index import build_index
from erda.corpus.vector_shards import ShardWorker, embed_corpus, process_embedder, vectors_folder
from erda.data.formats import example_from_json
from erda.errors import DataError, SettingsError

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
    rows = near_rows(whole, SHOTS, top=40)
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
    assert 30 <= len(near_rows(whole, [shot], top=1)) <= 31


def test_missing_examples_and_invalid_counts_raise(tmp_path: Path) -> None:
    whole = augmenter(toy_store(tmp_path, random_rows(20)), ToySimilarity())
    with pytest.raises(DataError):
        near_rows(whole, [])
    with pytest.raises(SettingsError):
        near_rows(whole, SHOTS, top=0)


def test_the_examples_of_a_relation_share_its_neighbours(tmp_path: Path) -> None:
    whole = augmenter(toy_store(tmp_path, various_rows(300)), ToySimilarity(dim=512))
    for n_shared, n_each in ((1, 1), (12, 2), (17, 2), (600, 8)):
        shared = near_rows(whole, SHOTS, top=8, per_relation=n_shared)
        np.testing.assert_array_equal(shared, near_rows(whole, SHOTS, top=n_each))


def test_the_command_writes_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = toy_store(tmp_path, random_rows(60))
    model = build_model(tmp_path / "tiny").path
    build_index(store, load_similarity(model))
    examples = tmp_path / "shots.jsonl"
    rows = [{**one, "relation": "met"} for one in random_rows(3, seed=5)]
    examples.write_text("".join(json.dumps(one) + "\n" for one in rows))
    out = tmp_path / "near.jsonl"
    arguments = ["narrow", str(store.folder), str(examples), "--top", "4", "--model", str(model), "--out", str(out)]
    erda_corpus(*arguments)
    n_rows = len(out.read_text().splitlines())
    assert 4 <= n_rows <= 60
    with pytest.raises(SettingsError, match="--per-relation"):
        erda_corpus(*arguments, "--per-relation", "0", "--overwrite")
    for path, more, said in ((out, [], "exists"), (examples, ["--overwrite"], "is the input")):
        before = path.read_bytes()
        with pytest.raises(SettingsError, match=said):
            erda_corpus(*arguments[:-1], str(path), *more)
        assert path.read_bytes() == before
    assert f"{n_rows:,} of 60 rows are near 3 examples" in capsys.readouterr().out


@pytest.mark.long
def test_several_processes_give_the_vectors_of_one(tmp_path: Path) -> None:
    store = toy_store(tmp_path, random_rows(50))
    folder = build_model(tmp_path / "tiny").path
    model = load_similarity(folder)
    alone = embed_corpus(store, model, shard_rows=10).vectors(range(50))
    (vectors_folder(store.folder, model.fingerprint) / "journal.jsonl").write_text("")
    worker = ShardWorker(corpus=store.folder, digest=store.digest, model=str(folder), fingerprint=model.fingerprint)
    together = embed_corpus(store, model, shard_rows=10, embedder=process_embedder(worker, 2)).vectors(range(50))
    np.testing.assert_allclose(alone, together, atol=2e-3)  # half precision; threads sum in another order
