"""The vectors of all rows of a corpus, in shards: computed one by one, kept as files, read by row number.

`DIR/vectors/<model>/` holds, for one similarity model, `vectors.json` (which model), `shard-<first row>.npy` (float16,
[n_rows, dim]) and `journal.jsonl`: a line for each shard that is whole. No shard spans two builds of the corpus, so
that what `erda corpus build --add` brings later leaves every finished shard as it is. A run that was stopped goes on
after the last shard that is whole; one that is missing or damaged is computed again.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from erda.corpus.manifest import StoredFile, Version, fault_of, faults_of
from erda.corpus.sql import disk_faults
from erda.encoders.devices import is_out_of_memory
from erda.errors import DataError, ErdaError, ModelError
from erda.files import (
    UNREADABLE,
    add_to_journal,
    is_unfinished,
    journal_values,
    locked,
    read_sealed,
    remove_unfinished,
    sealed,
    whole_file,
    write_json,
)

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel
    from erda.corpus.store import CorpusStore

FORMAT = 1
FOLDER = "vectors"
SHARD_ROWS = 16_384
ABOUT = "vectors.json"
JOURNAL = "journal.jsonl"
_OURS = re.compile(r"shard-\d{12}\.npy|(vectors|index|checked)\.json|journal\.jsonl|index\.faiss")
BATCH_SIZE = 64
BUSY = "another 'erda corpus index' is at work here; wait for it"
_STEP = 1024  # rows between two steps of a progress bar


@dataclass(frozen=True, slots=True, order=True)
class ShardPlan:
    """Rows `start` to `stop` of the corpus version whose digest is `version`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsAbout:
    """`vectors.json`: which model the vectors of a folder come from."""

    fingerprint: str
    dim: int
    shard_rows: int
    format: int = FORMAT


def vectors_folder(corpus: Path, fingerprint: str) -> Path:
    """Where the vectors of one model lie in a corpus folder."""
    return corpus / FOLDER / fingerprint[:16]


def plan_shards(versions: Iterable[Version], shard_rows: int) -> list[ShardPlan]:
    """Shards of at most `shard_rows` rows over all versions of a corpus."""
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


def read_about(folder: Path) -> VectorsAbout:
    """What the vectors of a folder are."""
    about = read_sealed(folder / ABOUT, VectorsAbout, remedy="Run 'erda corpus index --rebuild'.")
    if about.format != FORMAT or about.dim < 1 or about.shard_rows < 1:
        raise DataError(f"{folder / ABOUT}: made by another version of erda; run 'erda corpus index --rebuild'.")
    return about


def read_journal(folder: Path) -> dict[ShardPlan, Shard]:
    """The shards that were finished; a line that was damaged or cut short by an interruption does not count."""
    shards = [
        shard for shard in journal_values(folder / JOURNAL, Shard) if shard and shard.file.path == shard.plan.name
    ]
    return {shard.plan: shard for shard in shards}


def clear_folder(folder: Path) -> None:
    """Remove the vectors and the index of a folder, and nothing else."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) or is_unfinished(path.name):
            path.unlink()


class VectorShards:
    """Vectors by row number, from memory-mapped shards."""

    def __init__(self, folder: Path, dim: int, shards: Iterable[ShardPlan]) -> None:
        self.folder = folder
        self.dim = dim
        self.shards = sorted(shards)
        self._starts = [shard.start for shard in self.shards]
        self._mapped: dict[int, np.ndarray] = {}

    @classmethod
    def open(cls, folder: Path, *, beside: Sequence[StoredFile] = ()) -> VectorShards:
        """The finished shards of a folder, without gaps from row 0 on; they, and the files `beside`, are checked."""
        about, journal = read_about(folder), read_journal(folder)
        faults = faults_of(folder, [*beside, *(shard.file for shard in journal.values())])
        if faults:
            raise DataError("\n".join(f"{fault}." for fault in faults) + "\nRun 'erda corpus index' again to mend it.")
        found = cls(folder, about.dim, journal)
        row = 0
        for plan in found.shards:
            if plan.start != row or plan.stop <= row:
                raise DataError(f"{folder}: unfinished (no vectors of row {row:,}); run 'erda corpus index'.")
            row = plan.stop
        return found

    def __len__(self) -> int:
        return self.shards[-1].stop if self.shards else 0

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and vectors [n, dim] (float32) of each shard."""
        for number, shard in enumerate(self.shards):
            yield shard.start, np.asarray(self._shard(number), np.float32)

    def vectors(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The vectors of these rows, in the order given: [n_rows, dim] float32."""
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise DataError(f"{self.folder}: row {int(wanted.max())} asked for; vectors are there of {len(self)} rows.")
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
            if (array.shape, array.dtype) != ((plan.stop - plan.start, self.dim), np.float16):
                raise DataError(f"{path}: of shape {array.shape}; it is damaged: run 'erda corpus index' again.")
            self._mapped[number] = array
        return self._mapped[number]


# -- computing them -------------------------------------------------------------------------------------------------

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
