import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_corpus import ToySimilarity, erda_corpus, random_rows, toy_store

from erda.corpus import vector_shards
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.vector_index import VectorIndex, build_index
from erda.corpus.vector_shards import ShardPlan, ShardWorker, embed_corpus, embed_there, vectors_folder
from erda.errors import DataError, ErdaError, ModelError, SettingsError
from erda.files import locked


@pytest.fixture
def store(tmp_path: Path) -> CorpusStore:
    return toy_store(tmp_path, random_rows(100))


@pytest.fixture
def model() -> ToySimilarity:
    return ToySimilarity()


def test_vectors_equal_those_of_the_model_in_row_order(store: CorpusStore, model: ToySimilarity) -> None:
    shards = embed_corpus(store, model, shard_rows=30)
    expected = model.encode(store.rows(range(len(store))))
    assert len(shards.paths) == 4
    np.testing.assert_allclose(shards.vectors(np.arange(100)), expected, atol=1e-3)
    np.testing.assert_array_equal(shards.vectors([99, 0, 31]), shards.vectors(np.arange(100))[[99, 0, 31]])


def test_an_interrupted_run_resumes_after_the_last_complete_shard(store: CorpusStore) -> None:
    class Stops(ToySimilarity):
        def encode(self, examples, **settings):
            if self.n_calls == 2:
                raise KeyboardInterrupt
            return super().encode(examples, **settings)

    with pytest.raises(KeyboardInterrupt):
        embed_corpus(store, Stops(), shard_rows=30)
    model = ToySimilarity()
    folder = vectors_folder(store, model.fingerprint)
    assert len([*folder.glob("shard-*.npy")]) == 2
    with pytest.raises(DataError, match="no finished index"):
        VectorIndex.open(store, model)
    left = folder / ".shard-000000000060.npy.0123456789abcdef.tmp"
    left.write_bytes(b"half")
    shards = embed_corpus(store, model, shard_rows=30)
    assert model.n_encoded == 40
    assert not left.exists()
    np.testing.assert_allclose(shards.vectors(range(100)), model.encode(store.rows(range(100))), atol=1e-3)


def test_damaged_and_missing_shards_are_named_and_computed_again(store: CorpusStore, model: ToySimilarity) -> None:
    shards = embed_corpus(store, model, shard_rows=30)
    path = shards.paths[1]
    for content in (path.read_bytes()[:-1] + b"x", None):
        if content:
            path.write_bytes(content)
        else:
            path.unlink()
        before = model.n_encoded
        with pytest.raises(DataError, match="damaged"):
            vector_shards.VectorShards(shards.folder, 100).vectors([40])
        assert len(embed_corpus(store, model, shard_rows=30).vectors([40])) == 1
        assert model.n_encoded == before + 30


def test_exact_search_equals_numpy(store: CorpusStore, model: ToySimilarity) -> None:
    index = build_index(store, model)
    assert (index.about.factory, index.about.search.recall) == ("Flat", 1.0)
    queries = model.encode(store.rows([3, 50, 99]))
    scores, rows = index.search(queries, 5)
    products = queries @ index.shards.vectors(np.arange(100)).T
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :5], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(products, rows, axis=1), scores, atol=1e-5)
    scores, rows = index.search(queries, 500)
    assert rows.shape == (3, 100)
    assert index.search(queries[:0], 5)[1].shape == (0, 5)


@pytest.mark.parametrize("dim", [64, 60])
def test_an_ivf_index_gives_exact_scores(tmp_path: Path, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erda.corpus.vector_index.EXACT_ROWS", 100)

    class Scattered(ToySimilarity):
        def encode(self, examples, **settings):
            seeds = [zlib.crc32(" ".join(example.tokens).encode()) for example in examples]
            vectors = np.stack([np.random.default_rng(seed).standard_normal(self.dim) for seed in seeds])
            return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    store = toy_store(tmp_path, random_rows(300))
    model = Scattered(dim=dim)
    index = build_index(store, model)
    assert index.about.factory == ("IVF32,PQ16x4fsr" if dim == 64 else "IVF32,SQ8")
    assert index.about.search.recall >= 0.9
    queries = model.encode(store.rows(range(0, 300, 10)))
    scores, rows = index.search(queries, 3)
    exact = queries @ index.shards.vectors(np.arange(300)).T
    np.testing.assert_allclose(scores, np.take_along_axis(exact, rows, axis=1), atol=2e-3)
    assert (np.diff(scores, axis=1) <= 1e-6).all()
    assert (scores[:, 0] >= exact.max(axis=1) - 1e-3).mean() >= 0.9


def test_an_index_of_another_model_or_corpus_is_rejected(
    tmp_path: Path, store: CorpusStore, model: ToySimilarity
) -> None:
    with pytest.raises(DataError, match="run: erda corpus index"):
        VectorIndex.open(store, model)
    folder = build_index(store, model).shards.folder
    with pytest.raises(DataError, match="no finished index"):
        VectorIndex.open(store, ToySimilarity("other"))
    other = toy_store(tmp_path / "other", random_rows(90, seed=5))
    for target in (other.folder / "vectors" / folder.name, vectors_folder(other, model.fingerprint)):
        shutil.copytree(folder, target)
        with pytest.raises(ErdaError):
            VectorIndex.open(other, model)
        shutil.rmtree(target)
    assert build_index(other, model).about.n_rows == 90


def test_a_damaged_index_is_rejected_and_rebuilt(store: CorpusStore, model: ToySimilarity) -> None:
    folder = build_index(store, model).shards.folder
    path = folder / "index.faiss"
    whole = path.read_bytes()
    for damaged in (whole[:-10], b"x" * len(whole)):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"index\.faiss"):
            VectorIndex.open(store, model)
    build_index(store, model)
    assert path.read_bytes() == whole
    (folder / "index.json").write_text("{")
    with pytest.raises(DataError, match=r"index\.json"):
        VectorIndex.open(store, model)
    before = model.n_encoded
    build_index(store, model)
    written = path.stat().st_mtime_ns
    assert build_index(store, model).about.n_rows == 100
    assert (model.n_encoded, path.stat().st_mtime_ns) == (before, written)


def test_nan_vectors_and_a_second_run_raise(store: CorpusStore) -> None:
    class Broken(ToySimilarity):
        def encode(self, examples, **settings):
            return np.full((len(examples), self.dim), np.nan, np.float32)

    with pytest.raises(ModelError, match="NaN"):
        build_index(store, Broken())
    with (
        locked(vectors_folder(store, Broken().fingerprint), busy=""),
        pytest.raises(DataError, match="another 'erda corpus index' is running"),
    ):
        build_index(store, Broken())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--set", "batch_size=0", "--set", "dtype=float16"], ["batch_size", "dtype"]),
        (["--workers", "2"], ["--address"]),
        (["--address", "auto", "--device", "nonsense"], ["nonsense"]),
    ],
)
def test_invalid_options_and_options_without_effect_are_rejected(
    store: CorpusStore, options: list[str], named: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        erda_corpus("index", store.folder, *options)
    assert all(name in str(caught.value) for name in named)
    assert not (store.folder / "vectors").exists(), "nothing is written"


# --- workers ----------------------------------------------------------------------------------------------------------


SHARD = ShardPlan(0, 100)


def worker_of(store: CorpusStore) -> ShardWorker:
    fingerprint = ToySimilarity().fingerprint
    return ShardWorker(corpus=store.folder, digest=store.digest, model=None, fingerprint=fingerprint, device="cuda")


def test_out_of_memory_has_a_remedy(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> np.ndarray:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of ...")

    model = ToySimilarity()
    monkeypatch.setattr(model, "encode", full)
    monkeypatch.setattr(vector_shards, "_opened", lambda worker: (store, model))
    with pytest.raises(ErdaError, match="smaller batch_size or fewer --workers") as caught:
        embed_there(worker_of(store), SHARD)
    assert "Tried to allocate 2.00 GiB." in str(caught.value)
    with pytest.raises(ErdaError, match="out of memory"):
        embed_corpus(store, model)
    monkeypatch.undo()
    monkeypatch.setattr("erda.corpus.similarity.load_similarity", full)
    with pytest.raises(ErdaError, match="fewer --workers"):
        embed_there(worker_of(store), SHARD)


def test_a_worker_with_another_corpus_or_model_raises(
    store: CorpusStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(store)
    monkeypatch.setattr("erda.corpus.similarity.load_similarity", lambda *_, **__: ToySimilarity("other"))
    for other, said in (
        (worker, "has another similarity model"),
        (replace(worker, digest="0" * 64), "has another corpus in"),
        (replace(worker, corpus=tmp_path / "nowhere"), "put the corpus on storage that all nodes share"),
    ):
        with pytest.raises(ErdaError, match=said):
            embed_there(other, SHARD)
