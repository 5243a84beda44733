"""Faults in the processes that embed come out as what they are."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_corpus import random_rows, toy_store
from toy_similarity import ToySimilarity

from erda.corpus import embedding
from erda.corpus.embedding import ProcessEmbedder, embed_corpus
from erda.corpus.shards import ShardPlan, plan_shards, vectors_folder
from erda.corpus.store import CorpusStore
from erda.errors import ErdaError, ModelError


class Full(ToySimilarity):
    def encode(self, *_: object, **__: object) -> np.ndarray:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of ...")


def test_a_gpu_that_is_full_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(tmp_path, random_rows(20))
    monkeypatch.setattr(embedding, "_opened", {"store": store, "model": Full()})
    with pytest.raises(ErdaError, match=r"out of memory.*kept.*smaller --batch-size, or fewer --jobs") as caught:
        _processes(store).embed(tmp_path, _plan(store))
    assert "Tried to allocate 2.00 GiB." in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ErdaError, match="out of memory while sentences were embedded"):
        embed_corpus(store, Full())


def test_a_model_that_does_not_fit_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(tmp_path, random_rows(20))

    def load(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("erda.corpus.similarity.load_similarity", load)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    with pytest.raises(ErdaError, match="fewer --jobs"):
        _processes(store).embed(tmp_path, _plan(store))


def test_a_fault_of_a_process_that_opens_the_model_is_its_own_message(tmp_path: Path) -> None:
    store, model = toy_store(tmp_path, random_rows(20)), ToySimilarity()
    nowhere = ProcessEmbedder(corpus=store.folder, model=str(tmp_path / "nowhere"), n_processes=2)
    with pytest.raises(ModelError, match="No model folder at"):
        embed_corpus(store, model, shard_rows=10, embedder=nowhere)
    assert not list(vectors_folder(store.folder, model.fingerprint).glob("*.npy"))


def _processes(store: CorpusStore) -> ProcessEmbedder:
    return ProcessEmbedder(corpus=store.folder, model=None, n_processes=1, device="cuda")


def _plan(store: CorpusStore) -> ShardPlan:
    return plan_shards(store.versions, 100)[0]
