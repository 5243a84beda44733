"""The vectors of all rows of a corpus, in shards on disk, read by row number; and their computation, here or on Ray.

`DIR/vectors/<model>-<corpus>/` belongs to one similarity model and one corpus, named by the first digits of their
fingerprints. It holds `shard-<first row>.<checksum>.npy` (float16, [n_rows, dim]). A shard that exists is finished: an
interrupted run resumes with the missing shards, and a damaged shard is computed again.

On a Ray cluster, the corpus folder must be on shared storage with the same path on every node (NFS, a mounted bucket),
and `erda` must be installed on every node. Workers run the code of the local engine, so results are equal.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from erda.cluster import connected
from erda.corpus.corpus_store import CorpusStore, disk_faults, find_checked, is_intact, write_checked
from erda.encoders import device_kind
from erda.errors import DataError, ErdaError, ModelError, memory_faults_explained
from erda.fields import Count, Settings
from erda.files import locked, remove_unfinished, user_path

if TYPE_CHECKING:
    from erda.corpus.similarity import SimilarityModel

FOLDER = "vectors"
SHARD_ROWS = 16_384
OUT_OF_MEMORY = (
    "out of memory while embedding. Finished shards are kept: run the same command again with a smaller batch_size or "
    "fewer --workers."
)
BUSY = "another 'erda corpus index' is running on this folder; wait for it"


class EmbedSettings(Settings):
    """Settings of embedding: the number type of the computation, and the sentences per batch."""

    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    batch_size: Count = 64


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Rows `start` to `stop` of a corpus."""

    start: int
    stop: int

    @property
    def stem(self) -> str:
        """The name of the shard's file, without its checksum."""
        return f"shard-{self.start:012d}"


def vectors_folder(store: CorpusStore, fingerprint: str) -> Path:
    """The folder of a model's vectors."""
    return store.folder / FOLDER / f"{fingerprint[:16]}-{store.digest[:12]}"


def plan_shards(n_rows: int, shard_rows: int = SHARD_ROWS) -> list[ShardPlan]:
    """Divide rows into shards of at most `shard_rows` rows."""
    return [ShardPlan(start, min(start + shard_rows, n_rows)) for start in range(0, n_rows, shard_rows)]


def write_shard(folder: Path, plan: ShardPlan, vectors: np.ndarray) -> None:
    """Write the vectors of a shard."""
    content = io.BytesIO()
    np.save(content, vectors)
    write_checked(folder, plan.stem, ".npy", content.getvalue())


class VectorShards:
    """The vectors of `n_rows` rows by row number, from memory-mapped shards, which are verified at their first use."""

    def __init__(self, folder: Path, n_rows: int) -> None:
        self.folder, self._n_rows = folder, n_rows
        self.paths = sorted(folder.glob(f"shard-{'[0-9]' * 12}.*.npy"))
        self._starts = [int(path.name[6:18]) for path in self.paths]
        self._mapped: dict[int, np.ndarray] = {}
        if self._starts[:1] != [0]:
            raise DataError(f"{folder}: no vectors of row 0 here; run 'erda corpus index'.")
        self.dim = int(self._shard(0).shape[1])

    def __len__(self) -> int:
        return self._n_rows

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the first row and the vectors of each shard, [n_rows, dim] float32."""
        for number, start in enumerate(self._starts):
            yield start, np.asarray(self._shard(number), np.float32)

    def vectors(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read the vectors of rows: [n_rows, dim] float32, in the order of `rows`."""
        wanted = np.asarray(rows, np.int64)
        vectors = np.empty((len(wanted), self.dim), np.float32)
        numbers = np.searchsorted(self._starts, wanted, "right") - 1
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._shard(int(number))[wanted[here] - self._starts[number]]
        return vectors

    def _shard(self, number: int) -> np.ndarray:
        if number not in self._mapped:
            path = self.paths[number]
            n_rows = (*self._starts, self._n_rows)[number + 1] - self._starts[number]
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False) if is_intact(path) else None
            except Exception:  # of many kinds: NumPy does not check what it reads
                array = None
            if array is None or len(array) != n_rows:  # this shard or the next one
                raise DataError(f"{path}: damaged, or the next shard is missing; run 'erda corpus index' again.")
            self._mapped[number] = array
        return self._mapped[number]


# -- embedding -------------------------------------------------------------------------------------------------------

Embedder = Callable[[Sequence[ShardPlan]], Iterator[ShardPlan]]
"""Computes shards and yields each when its file is complete."""


def embed_corpus(
    store: CorpusStore,
    model: SimilarityModel,
    *,
    batch_size: int = 64,
    embedder: Embedder | None = None,
    shard_rows: int = SHARD_ROWS,
) -> VectorShards:
    """Compute the missing vectors, with `embedder` or in this process."""
    from tqdm import tqdm

    folder = vectors_folder(store, model.fingerprint)
    with locked(folder, busy=BUSY), disk_faults(folder):
        remove_unfinished(folder)
        missing = [plan for plan in plan_shards(len(store), shard_rows) if not find_checked(folder, plan.stem, ".npy")]
        done = len(store) - sum(plan.stop - plan.start for plan in missing)
        with tqdm(total=len(store), initial=done, desc="embedding", unit="row", disable=None) as bar:
            for plan in missing if embedder is None else ():
                embed_shard(store, model, plan, batch_size=batch_size, tick=bar.update)
            for plan in embedder(missing) if embedder is not None and missing else ():
                bar.update(plan.stop - plan.start)
    return VectorShards(folder, len(store))


def embed_shard(
    store: CorpusStore,
    model: SimilarityModel,
    plan: ShardPlan,
    *,
    batch_size: int = 64,
    tick: Callable[[int], object] = lambda n: None,
) -> None:
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
    write_shard(vectors_folder(store, model.fingerprint), plan, vectors)


# -- Ray -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShardWorker:
    """What a Ray worker needs to embed shards; it opens corpus and model once."""

    corpus: Path
    digest: str
    model: str | None
    fingerprint: str
    device: str = "cpu"
    dtype: str = "float32"
    batch_size: int = 64


def embed_there(worker: ShardWorker, plan: ShardPlan) -> ShardPlan:
    """Embed a shard in a Ray worker."""
    with memory_faults_explained(OUT_OF_MEMORY):  # loading the model may already exceed the free memory of a GPU
        embed_shard(*_opened(worker), plan, batch_size=worker.batch_size)
    return plan


@cache
def _opened(worker: ShardWorker) -> tuple[CorpusStore, SimilarityModel]:
    from erda.corpus.similarity import load_similarity

    node = socket.gethostname()
    if not worker.corpus.is_dir():
        raise DataError(f"node {node} cannot find {worker.corpus}: put the corpus on storage that all nodes share.")
    store = CorpusStore.open(worker.corpus)
    if store.digest != worker.digest:
        raise DataError(f"node {node} has another corpus in {worker.corpus} (digest {store.digest[:12]}).")
    model = load_similarity(worker.model, device=worker.device, dtype=worker.dtype)
    if model.fingerprint != worker.fingerprint:
        raise ModelError(f"node {node} has another similarity model ({model.fingerprint[:16]}).")
    return store, model


def ray_embedder(worker: ShardWorker, address: str, n_workers: int | None = None) -> Embedder:
    """Embed on a cluster: "auto", "local" (a cluster of this machine alone) or HOST:PORT.

    `n_workers` is the number of workers, each with its own model (default: one per GPU, or per CPU). More workers than
    GPUs share them. Ray repeats a shard whose worker was killed.
    """
    kind = "GPU" if device_kind(worker.device) == "cuda" else "CPU"  # rejects an invalid name here, not on every node
    model = worker.model
    if model is not None and user_path(model).is_dir():
        model = str(user_path(model).resolve())
    there = replace(worker, corpus=worker.corpus.resolve(), model=model)

    def embed(plans: Sequence[ShardPlan]) -> Iterator[ShardPlan]:
        with connected(address) as ray:
            n_devices = int(ray.cluster_resources().get(kind, 1))
            n_tasks = n_workers or n_devices
            share = min(1, n_devices / n_tasks) if kind == "GPU" else 0
            task = ray.remote(num_cpus=1, num_gpus=share, max_calls=0, scheduling_strategy="SPREAD")(embed_there)
            left = iter(plans)
            running = [task.remote(there, plan) for plan in islice(left, n_tasks)]
            while running:
                done, running = ray.wait(running)
                running += [task.remote(there, plan) for plan in islice(left, len(done))]
                try:
                    yield from ray.get(done)
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None)
                    raise cause if isinstance(cause, ErdaError) else ErdaError(f"the Ray job failed: {error}") from None

    return embed
