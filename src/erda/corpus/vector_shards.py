"""The vectors of all rows of a corpus, in shards on disk, read by row number.

`DIR/vectors/<model>/` belongs to one similarity model, named by the first 16 digits of its fingerprint. It holds
`shard-<first row>.npy` (float16, [n_rows, dim]) and `journal.jsonl`, with one sealed line for each finished shard. No
shard spans two builds of the corpus, so `erda corpus build --add` leaves finished shards valid. An interrupted run
resumes with the missing shards; a damaged shard is computed again.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.corpus.manifest import CorpusVersion, StoredFile, fault_of, faults_of
from erda.corpus.sql import disk_faults
from erda.errors import DataError, ErdaError, ModelError, memory_faults_explained
from erda.files import (
    UNREADABLE,
    decode_sealed,
    is_unfinished,
    locked,
    read_bytes,
    remove_own,
    remove_unfinished,
    sealed,
    whole_file,
)
from erda.outputs import append_lines

if TYPE_CHECKING:
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import SimilarityModel

FOLDER = "vectors"
SHARD_ROWS = 16_384
JOURNAL = "journal.jsonl"
_OURS = re.compile(r"shard-\d{12}\.npy|(vectors|index|checked)\.json|journal\.jsonl|index\.faiss")
BATCH_SIZE = 64
OUT_OF_MEMORY = (
    "out of memory while embedding. Finished shards are kept: run the same command again with a smaller --batch-size "
    "or fewer --jobs."
)
BUSY = "another 'erda corpus index' is running on this folder; wait for it"


@dataclass(frozen=True, slots=True, order=True)
class ShardPlan:
    """Rows `start` to `stop` of the corpus version with digest `version`."""

    start: int
    stop: int
    version: str

    @property
    def name(self) -> str:
        """The shard's file."""
        return f"shard-{self.start:012d}.npy"


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard: a line of the journal."""

    plan: ShardPlan
    file: StoredFile


def vectors_folder(corpus: Path, fingerprint: str) -> Path:
    """The folder of a model's vectors."""
    return corpus / FOLDER / fingerprint[:16]


def plan_shards(versions: Iterable[CorpusVersion], shard_rows: int) -> list[ShardPlan]:
    """Divide all versions of a corpus into shards of at most `shard_rows` rows."""
    plans, start = [], 0
    for n_rows, digest in versions:
        plans += [ShardPlan(left, min(left + shard_rows, n_rows), digest) for left in range(start, n_rows, shard_rows)]
        start = n_rows
    return plans


def write_shard(folder: Path, plan: ShardPlan, vectors: np.ndarray) -> Shard:
    """Write the vectors of a shard."""
    path = folder / plan.name
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
    return Shard(plan, StoredFile.of(folder, path))


def add_to_journal(folder: Path, shard: Shard) -> None:
    """Append a finished shard to the journal."""
    append_lines(folder / JOURNAL, json.dumps(sealed(shard)).encode() + b"\n")


def read_journal(folder: Path) -> dict[ShardPlan, Shard]:
    """Read the finished shards; skip damaged or incomplete lines."""
    path, shards = folder / JOURNAL, dict[ShardPlan, Shard]()
    for line in read_bytes(path).splitlines() if path.exists() else ():
        with suppress(DataError):
            shard = decode_sealed(line, Shard, place=str(path))
            if shard.file.path == shard.plan.name:
                shards[shard.plan] = shard
    return shards


def clear_folder(folder: Path) -> None:
    """Remove the vectors and the index of a folder, and nothing else."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) or is_unfinished(path.name):
            remove_own(path)


class VectorShards:
    """Vectors by row number, from memory-mapped shards."""

    def __init__(self, folder: Path, shards: Iterable[ShardPlan]) -> None:
        self.folder = folder
        self.shards = sorted(shards)
        self._starts = [shard.start for shard in self.shards]
        self._mapped: dict[int, np.ndarray] = {}
        self.dim = self._shard(0).shape[1]

    @classmethod
    def open(cls, folder: Path, *, beside: Sequence[StoredFile] = ()) -> VectorShards:
        """Open the finished shards of a folder, and verify them and the files `beside`; gaps are an error."""
        journal = read_journal(folder)
        faults = faults_of(folder, [*beside, *(shard.file for shard in journal.values())])
        if faults:
            raise DataError("\n".join(f"{fault}." for fault in faults) + "\nTo repair it, run 'erda corpus index'.")
        if not journal:
            raise DataError(f"{folder}: no vectors here; run 'erda corpus index'.")
        found = cls(folder, journal)
        row = 0
        for plan in found.shards:
            if plan.start != row or plan.stop <= row:
                raise DataError(f"{folder}: unfinished (no vectors of row {row:,}); run 'erda corpus index'.")
            row = plan.stop
        return found

    def __len__(self) -> int:
        return self.shards[-1].stop if self.shards else 0

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first row and the vectors of each shard, [n_rows, dim] float32."""
        for number, shard in enumerate(self.shards):
            yield shard.start, np.asarray(self._shard(number), np.float32)

    def vectors(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read the vectors of rows: [n_rows, dim] float32, in the order of `rows`."""
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise DataError(f"{self.folder}: row {int(wanted.max())} requested; rows are 0 to {len(self) - 1}.")
        vectors = np.empty((len(wanted), self.dim), np.float32)
        numbers = np.searchsorted(self._starts, wanted, "right") - 1
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._shard(int(number))[wanted[here] - self._starts[number]]
        return vectors

    def _shard(self, number: int) -> np.ndarray:
        if number not in self._mapped:
            plan = self.shards[number]
            path = self.folder / plan.name
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except UNREADABLE as error:
                raise DataError(f"{path}: cannot be read ({error}); run 'erda corpus index' again.") from None
            dim = self._mapped[0].shape[1] if 0 in self._mapped else array.shape[-1]
            if (array.shape, array.dtype) != ((plan.stop - plan.start, dim), np.float16):
                raise DataError(f"{path}: wrong shape {array.shape}; it is damaged: run 'erda corpus index' again.")
            self._mapped[number] = array
        return self._mapped[number]


# -- embedding -------------------------------------------------------------------------------------------------------

Embedder = Callable[[Path, Sequence[ShardPlan]], Iterator[Shard]]
"""Computes shards in a folder of vectors and yields each when its file is complete."""


def embed_corpus(
    store: CorpusStore,
    model: SimilarityModel,
    *,
    rebuild: bool = False,
    shard_rows: int = SHARD_ROWS,
    batch_size: int = BATCH_SIZE,
    embedder: Embedder | None = None,
) -> VectorShards:
    """Compute the missing vectors, with `embedder` or in this process; `rebuild` discards existing ones."""
    from tqdm import tqdm

    if not len(store):
        raise DataError(f"{store.folder}: the corpus has no rows; there is nothing to embed.")
    folder = vectors_folder(store.folder, model.fingerprint)
    with locked(folder, busy=BUSY), disk_faults(folder):
        if rebuild:
            clear_folder(folder)
        plans = plan_shards(store.versions, shard_rows)
        journal = read_journal(folder)
        _refuse_foreign(folder, journal, plans)
        finished = {plan for plan, shard in journal.items() if fault_of(folder, shard.file) is None}
        missing = [plan for plan in plans if plan not in finished]
        n_missing = sum(plan.stop - plan.start for plan in missing)
        with tqdm(total=len(store), initial=len(store) - n_missing, desc="embedding", unit="row", disable=None) as bar:
            for plan in missing if embedder is None else ():
                shard = embed_shard(store, model, plan, folder, batch_size=batch_size, tick=bar.update)
                add_to_journal(folder, shard)
            for shard in embedder(folder, missing) if embedder is not None and missing else ():
                add_to_journal(folder, shard)
                bar.update(shard.plan.stop - shard.plan.start)
        remove_unfinished(folder)
    return VectorShards(folder, plans)


def embed_shard(
    store: CorpusStore,
    model: SimilarityModel,
    plan: ShardPlan,
    folder: Path,
    *,
    batch_size: int = BATCH_SIZE,
    tick: Callable[[int], object] = lambda n: None,
) -> Shard:
    """Compute and write one shard; sentences of similar length share a batch."""
    rows = [sentence.example for batch in store.batches(start=plan.start, stop=plan.stop) for sentence in batch]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens))
    vectors = np.empty((len(rows), model.dim), np.float16)
    with memory_faults_explained(OUT_OF_MEMORY):
        for left in range(0, len(order), batch_size):
            some = order[left : left + batch_size]
            vectors[some] = model.encode([rows[i] for i in some], batch_size=batch_size)
            tick(len(some))
    if not np.isfinite(vectors).all():
        raise ModelError(
            f"model {model.fingerprint[:16]} gives NaN or infinity for rows {plan.start} to "
            f"{plan.stop - 1}; its weights are damaged or its training diverged."
        )
    return write_shard(folder, plan, vectors)


def _refuse_foreign(folder: Path, journal: dict[ShardPlan, Shard], plans: Sequence[ShardPlan]) -> None:
    foreign = sorted(set(journal) - set(plans))
    if foreign:
        raise DataError(
            f"{folder}: {len(foreign)} shards belong to another version of this corpus (digest "
            f"{foreign[0].version[:12]}; now {plans[-1].version[:12]}). To delete them and embed the corpus again, run "
            "'erda corpus index' with --rebuild."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorker:
    """Embed shards in another process, on this machine or on a cluster node.

    Corpus and model load lazily: a failing constructor kills the pool, and Ray retries indefinitely.
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
        """Embed one shard."""
        with memory_faults_explained(OUT_OF_MEMORY):  # loading the model may already exceed the free memory of a GPU
            store, model = _opened(self)
            return embed_shard(store, model, plan, folder, batch_size=self.batch_size)


@cache
def _opened(worker: ShardWorker) -> tuple[CorpusStore, SimilarityModel]:
    import torch

    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import load_similarity

    node = socket.gethostname()
    if not worker.corpus.is_dir():
        raise DataError(f"node {node} cannot find {worker.corpus}: put the corpus on storage that all nodes share.")
    if worker.n_threads:
        torch.set_num_threads(worker.n_threads)
    store = CorpusStore.open(worker.corpus, n_threads=worker.n_threads)
    if store.digest != worker.digest:
        raise DataError(f"node {node} has another corpus in {worker.corpus} (digest {store.digest[:12]}).")
    model = load_similarity(worker.model, device=worker.device, dtype=worker.dtype)
    if model.fingerprint != worker.fingerprint:
        raise ModelError(f"node {node} has another similarity model ({model.fingerprint[:16]}).")
    return store, model


def process_embedder(worker: ShardWorker, n_processes: int) -> Embedder:
    """Embed in several processes, each with its own model and share of the cores."""
    worker = replace(worker, n_threads=max(1, (os.cpu_count() or 1) // n_processes))

    def embed(folder: Path, plans: Sequence[ShardPlan]) -> Iterator[Shard]:
        with ProcessPoolExecutor(min(n_processes, len(plans)), get_context("spawn")) as pool:
            try:
                for future in as_completed([pool.submit(worker.embed, folder, plan) for plan in plans]):
                    yield future.result()
            except BrokenProcessPool as error:
                raise ErdaError(
                    "an embedding process was killed, perhaps for lack of memory. Finished shards are kept: run the "
                    "same command again with fewer --jobs."
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)

    return embed
