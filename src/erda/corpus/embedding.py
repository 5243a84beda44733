"""The vectors of a corpus, computed shard by shard: in this process, or in several of this machine.

A run that was stopped goes on after the last shard that is whole; one that is missing or damaged is computed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
class ProcessEmbedder:
    """Embeds in several processes, for many cores, or for a GPU that one process cannot keep busy.

    Each holds a similarity model of its own and has its share of the cores.
    """

    corpus: Path
    model: str | None
    n_processes: int
    device: str = "cpu"
    dtype: str = "float32"
    batch_size: int = BATCH_SIZE

    def __call__(self, folder: Path, plans: Sequence[ShardPlan]) -> Iterator[Shard]:
        """Shards in the order in which they are finished."""
        with ProcessPoolExecutor(min(self.n_processes, len(plans)), get_context("spawn")) as pool:
            try:
                waiting = [pool.submit(self.embed, folder, plan) for plan in plans]
                for future in as_completed(waiting):
                    yield future.result()
            except BrokenProcessPool as error:
                raise ErdaError(
                    "a process that embedded sentences was killed; is there too little memory? What is finished is "
                    "kept: give the same command again, with fewer --jobs."
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)

    def embed(self, folder: Path, plan: ShardPlan) -> Shard:
        """Compute one shard, in a process of the pool."""
        with memory_faults_explained():  # the model alone may be too large for what others left of a GPU
            store, model = self._open()
            return embed_shard(store, model, plan, folder, batch_size=self.batch_size)

    def _open(self) -> tuple[CorpusStore, SimilarityModel]:
        """Corpus and model, opened with the first shard: a fault of an initializer would only break the pool."""
        if not _opened:
            import torch

            from erda.corpus.similarity import load_similarity
            from erda.corpus.store import CorpusStore

            n_threads = max(1, (os.cpu_count() or 1) // self.n_processes)
            torch.set_num_threads(n_threads)
            store = CorpusStore.open(self.corpus, n_threads=n_threads)
            _opened.update(store=store, model=load_similarity(self.model, device=self.device, dtype=self.dtype))
        return _opened["store"], _opened["model"]


_opened: dict[str, Any] = {}  # of a process of the pool: the corpus and the similarity model, opened once
