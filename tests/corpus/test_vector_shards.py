"""The journal of vector shards, and errors of embedding processes."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_corpus import random_rows, toy_store
from toy_similarity import ToySimilarity

from erda.corpus import vector_shards
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.manifest import StoredFile
from erda.corpus.vector_shards import (
    Shard,
    ShardPlan,
    ShardWorker,
    add_to_journal,
    embed_corpus,
    plan_shards,
    process_embedder,
    read_journal,
    vectors_folder,
)
from erda.errors import ErdaError, ModelError, WriteError


def test_a_journal_keeps_every_complete_line(tmp_path: Path) -> None:
    plans = [ShardPlan(0, 5, "v"), ShardPlan(5, 9, "v")]
    first, second = (Shard(plan, StoredFile(plan.name, 10, "0" * 64)) for plan in plans)
    path = tmp_path / "journal.jsonl"
    assert read_journal(tmp_path) == {}
    add_to_journal(tmp_path, first)
    with path.open("ab") as file:
        file.write(b'{"plan": {"sta')
    add_to_journal(tmp_path, second)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    assert read_journal(tmp_path) == {first.plan: first, second.plan: second}
    path.write_bytes(path.read_bytes().replace(b'"size": 10', b'"size": 11', 1))
    assert read_journal(tmp_path) == {second.plan: second}
    with pytest.raises(WriteError):
        add_to_journal(tmp_path / "missing", first)


class Full(ToySimilarity):
    def encode(self, *_: object, **__: object) -> np.ndarray:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of ...")


def test_out_of_memory_on_a_gpu_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(tmp_path, random_rows(20))
    monkeypatch.setattr(vector_shards, "_opened", lambda worker: (store, Full()))
    with pytest.raises(ErdaError, match="smaller --batch-size or fewer --jobs") as caught:
        _worker(store).embed(tmp_path, _plan(store))
    assert "Tried to allocate 2.00 GiB." in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ErdaError, match="out of memory"):
        embed_corpus(store, Full())


def test_out_of_memory_while_loading_a_model_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(tmp_path, random_rows(20))

    def load(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("erda.corpus.similarity.load_similarity", load)
    with pytest.raises(ErdaError, match="fewer --jobs"):
        _worker(store).embed(tmp_path, _plan(store))


def test_an_error_in_an_embedding_process_keeps_its_message(tmp_path: Path) -> None:
    store, model = toy_store(tmp_path, random_rows(20)), ToySimilarity()
    nowhere = process_embedder(replace(_worker(store), model=str(tmp_path / "nowhere"), device="cpu"), 1)
    with pytest.raises(ModelError, match="No model folder at"):
        embed_corpus(store, model, shard_rows=10, embedder=nowhere)
    assert not list(vectors_folder(store.folder, model.fingerprint).glob("*.npy"))


def test_a_worker_with_another_corpus_or_model_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = _worker(toy_store(tmp_path, random_rows(20)))
    monkeypatch.setattr("erda.corpus.similarity.load_similarity", lambda *_, **__: ToySimilarity("other"))
    for other, said in (
        (worker, "has another similarity model"),
        (replace(worker, digest="0" * 64), "has another corpus in"),
        (replace(worker, corpus=tmp_path / "nowhere"), "put the corpus on storage that all nodes share"),
    ):
        with pytest.raises(ErdaError, match=said):
            other.embed(tmp_path, ShardPlan(0, 20, "v"))


def _worker(store: CorpusStore) -> ShardWorker:
    return ShardWorker(
        corpus=store.folder,
        digest=store.digest,
        model=None,
        fingerprint=ToySimilarity().fingerprint,
        device="cuda",
    )


def _plan(store: CorpusStore) -> ShardPlan:
    return plan_shards(store.versions, 100)[0]
