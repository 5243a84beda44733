"""The vectors of a corpus, computed shard by shard: in this process, or in several of this machine.

A run that was stopped goes on after the last shard that is whole; one that is missing or damaged is computed again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.corpus.manifest import fault_of
from erda.corpus.shards import (
    ABOUT,
    JOURNAL,
    SHARD_ROWS,
    Shard,
    ShardPlan,
    VectorsAbout,
    VectorShards,
    clear_folder,
    plan_shards,
    read_about,
    read_journal,
    vectors_folder,
    write_shard,
)
from erda.corpus.sql import disk_faults
from erda.encoders.devices import is_out_of_memory
from erda.errors import DataError, ErdaError, ModelError
from erda.files import add_to_journal, locked, remove_unfinished, sealed, write_json

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.store import CorpusStore

BATCH_SIZE = 64
BUSY = "another 'erda corpus index' is at work here; wait for it"
_STEP = 1024  # rows between two steps of a progress bar

Embedder = Callable[[Path, Sequence[ShardPlan]], Iterator[Shard]]
"""Computes shards in a folder of vectors and gives each as soon as its file is whole."""


def embed_corpus(
    store: CorpusStore,
    model: SimilarityModel,
    *,
    rebuild: bool = False,
    shard_rows: int = SHARD_ROWS,
    batch_size: int = BATCH_SIZE,
    embedder: Embedder | None = None,
) -> VectorShards:
    """Compute the vectors of every row that has none yet: by `embedder`, without one here.

    `rebuild` throws away what was computed of another version of the corpus.
    """
    from tqdm import tqdm

    if not len(store):
        raise DataError(f"{store.folder}: the corpus has no rows; there is nothing to embed.")
    folder = vectors_folder(store.folder, model.fingerprint)
    with locked(folder, busy=BUSY), disk_faults(folder):
        if rebuild:
            clear_folder(folder)
        about = _open_about(folder, model, shard_rows)
        plans = plan_shards(store.versions, about.shard_rows)
        journal = read_journal(folder)
        _refuse_foreign(folder, journal, plans)
        finished = {plan for plan, shard in journal.items() if fault_of(folder, shard.file) is None}
        missing = [plan for plan in plans if plan not in finished]
        n_missing = sum(plan.stop - plan.start for plan in missing)
        with tqdm(total=len(store), initial=len(store) - n_missing, desc="embedding", unit="row", disable=None) as bar:
            for plan in missing if embedder is None else ():
                shard = embed_shard(store, model, plan, folder, batch_size=batch_size, tick=bar.update)
                add_to_journal(folder / JOURNAL, shard)
            for shard in embedder(folder, missing) if embedder is not None and missing else ():
                add_to_journal(folder / JOURNAL, shard)
                bar.update(shard.plan.stop - shard.plan.start)
        remove_unfinished(folder)
    return VectorShards(folder, about.dim, plans)


def embed_shard(
    store: CorpusStore,
    model: SimilarityModel,
    plan: ShardPlan,
    folder: Path,
    *,
    batch_size: int = BATCH_SIZE,
    tick: Callable[[int], object] = lambda n: None,
) -> Shard:
    """Compute one shard, sentences of like length together, and write it whole."""
    rows = [sentence.example for batch in store.batches(start=plan.start, stop=plan.stop) for sentence in batch]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens))
    vectors = np.empty((len(rows), model.dim), np.float16)
    with memory_faults_explained():
        for left in range(0, len(order), _STEP):
            some = order[left : left + _STEP]
            vectors[some] = model.encode([rows[i] for i in some], batch_size=batch_size)
            tick(len(some))
    if not np.isfinite(vectors).all():
        raise ModelError(
            f"model {model.fingerprint[:16]} gives vectors that are no numbers for rows {plan.start} to "
            f"{plan.stop - 1}; its weights are damaged or its training diverged."
        )
    return write_shard(folder, plan, vectors)


@contextmanager
def memory_faults_explained() -> Iterator[None]:
    """Turn 'out of memory' of the machine or of a GPU into a message that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ErdaError(
            f"out of memory while sentences were embedded ({reason}). What is finished is kept: give the same command "
            "again with a smaller --batch-size, or fewer --jobs."
        ) from error


def _open_about(folder: Path, model: SimilarityModel, shard_rows: int) -> VectorsAbout:
    if not (folder / ABOUT).exists():
        about = VectorsAbout(fingerprint=model.fingerprint, dim=model.dim, shard_rows=shard_rows)
        write_json(folder / ABOUT, sealed(about))
    about = read_about(folder)
    if (about.fingerprint, about.dim) != (model.fingerprint, model.dim):
        raise ModelError(f"{folder}: holds vectors of another model; run 'erda corpus index --rebuild'.")
    return about


def _refuse_foreign(folder: Path, journal: dict[ShardPlan, Shard], plans: Sequence[ShardPlan]) -> None:
    foreign = sorted(set(journal) - set(plans))
    if foreign:
        raise DataError(
            f"{folder}: {len(foreign)} shards were made of another version of this corpus (digest "
            f"{foreign[0].version[:12]}; now {plans[-1].version[:12]}). The corpus was built anew: 'erda corpus index "
            "--rebuild' throws them away and embeds it again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorker:
    """Embeds shards in a process of its own, here or on another machine.

    Corpus and model are opened with its first shard: one that cannot be made breaks a pool, and Ray tries for ever.
    """

    corpus: Path
    digest: str
    model: str | None
    fingerprint: str
    device: str = "cpu"
    dtype: str = "float32"
    batch_size: int = BATCH_SIZE
    n_threads: int | None = None

    def embed(self, folder: Path, plan: ShardPlan) -> Shard:
        """Compute one shard."""
        with memory_faults_explained():  # the model alone may be too large for what others left of a GPU
            store, model = _opened(self)
            return embed_shard(store, model, plan, folder, batch_size=self.batch_size)


@cache
def _opened(worker: ShardWorker) -> tuple[CorpusStore, SimilarityModel]:
    import torch

    from erda.corpus.similarity import load_similarity
    from erda.corpus.store import CorpusStore

    node = socket.gethostname()
    if not worker.corpus.is_dir():
        raise DataError(f"node {node} does not see {worker.corpus}: put the corpus on storage that all nodes share.")
    if worker.n_threads:
        torch.set_num_threads(worker.n_threads)
    store = CorpusStore.open(worker.corpus, n_threads=worker.n_threads)
    if store.digest != worker.digest:
        raise DataError(f"node {node} sees another corpus in {worker.corpus} (digest {store.digest[:12]}).")
    model = load_similarity(worker.model, device=worker.device, dtype=worker.dtype)
    if model.fingerprint != worker.fingerprint:
        raise ModelError(f"node {node} has another similarity model ({model.fingerprint[:16]}).")
    return store, model


def process_embedder(worker: ShardWorker, n_processes: int) -> Embedder:
    """Embeds in several processes, for many cores, or for a GPU that one process cannot keep busy.

    Each holds a similarity model of its own and has its share of the cores.
    """
    worker = replace(worker, n_threads=max(1, (os.cpu_count() or 1) // n_processes))

    def embed(folder: Path, plans: Sequence[ShardPlan]) -> Iterator[Shard]:
        with ProcessPoolExecutor(min(n_processes, len(plans)), get_context("spawn")) as pool:
            try:
                for future in as_completed([pool.submit(worker.embed, folder, plan) for plan in plans]):
                    yield future.result()
            except BrokenProcessPool as error:
                raise ErdaError(
                    "a process that embedded sentences was killed; is there too little memory? What is finished is "
                    "kept: give the same command again, with fewer --jobs."
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)

    return embed
