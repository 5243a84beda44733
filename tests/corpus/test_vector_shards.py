"""Faults in the processes that embed come out as what they are."""

from __future__ import annotations

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
from erda.corpus.vector_shards import (
    ShardPlan,
    ShardWorker,
    embed_corpus,
    plan_shards,
    process_embedder,
    vectors_folder,
)
from erda.errors import ErdaError, ModelError


class Full(ToySimilarity):
    def encode(self, *_: object, **__: object) -> np.ndarray:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of ...")


def test_a_gpu_that_is_full_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(tmp_path, random_rows(20))
    monkeypatch.setattr(vector_shards, "_opened", lambda worker: (store, Full()))
    with pytest.raises(ErdaError, match=r"out of memory.*kept.*smaller --batch-size, or fewer --jobs") as caught:
        _worker(store).embed(tmp_path, _plan(store))
    assert "Tried to allocate 2.00 GiB." in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ErdaError, match="out of memory while sentences were embedded"):
        embed_corpus(store, Full())


def test_a_model_that_does_not_fit_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(tmp_path, random_rows(20))

    def load(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("erda.corpus.similarity.load_similarity", load)
    with pytest.raises(ErdaError, match="fewer --jobs"):
        _worker(store).embed(tmp_path, _plan(store))


def test_a_fault_of_a_process_that_opens_the_model_is_its_own_message(tmp_path: Path) -> None:
    store, model = toy_store(tmp_path, random_rows(20)), ToySimilarity()
    nowhere = process_embedder(replace(_worker(store), model=str(tmp_path / "nowhere"), device="cpu"), 2)
    with pytest.raises(ModelError, match="No model folder at"):
        embed_corpus(store, model, shard_rows=10, embedder=nowhere)
    assert not list(vectors_folder(store.folder, model.fingerprint).glob("*.npy"))


def test_a_worker_that_sees_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = _worker(toy_store(tmp_path, random_rows(20)))
    monkeypatch.setattr("erda.corpus.similarity.load_similarity", lambda *_, **__: ToySimilarity("other"))
    for other, said in (
        (worker, "has another similarity model"),
        (replace(worker, digest="0" * 64), "sees another corpus in"),
        (replace(worker, corpus=tmp_path / "nowhere"), "does not see .*put the corpus on storage that all nodes share"),
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
