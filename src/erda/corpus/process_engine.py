"""Embedding in several processes of this machine: for many cores, or for a GPU that one process cannot keep busy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.corpus.manifest import StoredFile
from erda.corpus.shards import BATCH_SIZE, ShardPlan, embed_shard, memory_faults_explained
from erda.errors import ErdaError

if TYPE_CHECKING:
    from erda.corpus.store import CorpusStore

_opened: dict[str, Any] = {}  # of a worker: the corpus and the similarity model, opened once


def process_embedder(
    store: CorpusStore,
    model: str | None,
    *,
    n_processes: int,
    device: str = "cpu",
    dtype: str = "float32",
    batch_size: int = BATCH_SIZE,
) -> Callable[[Path, Sequence[ShardPlan]], Iterator[tuple[ShardPlan, StoredFile]]]:
    """What `embed_corpus` takes as its engine: `n_processes` similarity models, each with its share of the cores."""
    return partial(_embed, (store.folder, model, device, dtype), n_processes, batch_size)


def _embed(
    parts: tuple[Path, str | None, str, str],
    n_processes: int,
    batch_size: int,
    folder: Path,
    plans: Sequence[ShardPlan],
) -> Iterator[tuple[ShardPlan, StoredFile]]:
    n_threads = max(1, (os.cpu_count() or 1) // n_processes)
    with ProcessPoolExecutor(min(n_processes, len(plans)), get_context("spawn")) as pool:
        try:
            work = partial(_embed_one, (*parts, n_threads), folder, batch_size)
            waiting = {pool.submit(work, plan): plan for plan in plans}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool as error:
            raise ErdaError(
                "a process that embedded sentences was killed; is there too little memory? What is finished is kept: "
                "give the same command again, with fewer --jobs."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _open(corpus: Path, model: str | None, device: str, dtype: str, n_threads: int) -> tuple[Any, Any]:
    """Corpus and model, opened with the first shard: a fault of an initializer would only break the pool."""
    if _opened:
        return _opened["store"], _opened["model"]
    import torch

    from erda.corpus.similarity import load_similarity
    from erda.corpus.store import CorpusStore

    torch.set_num_threads(n_threads)
    store = CorpusStore.open(corpus, n_threads=n_threads)
    _opened.update(store=store, model=load_similarity(model, device=device, dtype=dtype))
    return _opened["store"], _opened["model"]


def _embed_one(
    parts: tuple[Path, str | None, str, str, int], folder: Path, batch_size: int, plan: ShardPlan
) -> StoredFile:
    with memory_faults_explained():  # the model alone may be too large for what others left of a GPU
        store, model = _open(*parts)
        return embed_shard(store, model, plan, folder, batch_size=batch_size)
