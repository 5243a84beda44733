"""Embedding of a corpus by several workers, through Ray Data: on this machine or on a cluster.

On a cluster, the corpus folder must be on shared storage with the same path on every node (NFS, a mounted bucket), and
`erda` must be installed on every node. Workers run the code of the local engine, so results are equal.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.cluster import connected, require_ray
from erda.corpus.vector_shards import OUT_OF_MEMORY, Embedder, ShardPlan, embed_shard
from erda.encoders import device_kind
from erda.errors import DataError, ErdaError, ModelError, memory_faults_explained
from erda.files import user_path

if TYPE_CHECKING:
    from erda.corpus.corpus_store import CorpusStore
    from erda.corpus.similarity import SimilarityModel

_OURS = re.compile(r"^\s*erda\.errors\.(\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorker:
    """Embed shards in a Ray worker.

    Corpus and model load lazily: a failing constructor kills the pool, and Ray retries indefinitely.
    """

    corpus: Path
    digest: str
    model: str | None
    fingerprint: str
    device: str = "cpu"
    dtype: str = "float32"
    batch_size: int = 64

    def embed(self, folder: Path, plan: ShardPlan) -> ShardPlan:
        """Embed one shard."""
        with memory_faults_explained(OUT_OF_MEMORY):  # loading the model may already exceed the free memory of a GPU
            store, model = _opened(self)
            embed_shard(store, model, plan, folder, batch_size=self.batch_size)
        return plan


@cache
def _opened(worker: ShardWorker) -> tuple[CorpusStore, SimilarityModel]:
    from erda.corpus.corpus_store import CorpusStore
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
    GPUs share them.
    """
    kind = "GPU" if device_kind(worker.device) == "cuda" else "CPU"  # rejects an invalid name here, not on every node
    model = worker.model
    if model is not None and user_path(model).is_dir():
        model = str(user_path(model).resolve())
    there = replace(worker, corpus=worker.corpus.resolve(), model=model)

    def embed(folder: Path, plans: Sequence[ShardPlan]) -> Iterator[ShardPlan]:
        require_ray("ray.data")
        with connected(address) as ray:
            ray.data.DataContext.get_current().enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            n_devices = int(ray.cluster_resources().get(kind, 1))
            n_actors = n_workers or n_devices
            done = ray.data.from_items([asdict(plan) for plan in plans], override_num_blocks=len(plans)).map_batches(
                _ShardActor,
                fn_constructor_args=(there, folder.resolve()),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=max(1, min(n_actors, len(plans)))),
                num_cpus=1,
                num_gpus=min(1, n_devices / n_actors) if kind == "GPU" else 0,
            )
            try:
                yield from (ShardPlan(int(row["start"]), int(row["stop"])) for row in done.iter_rows())
            except ray.exceptions.RayError as error:
                raise _erda_error(error) from error

    return embed


@dataclass
class _ShardActor:
    """A `ShardWorker` as a callable for Ray Data."""

    worker: ShardWorker
    folder: Path

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed a shard: columns of its plan in and out."""
        self.worker.embed(self.folder, ShardPlan(int(batch["start"][0]), int(batch["stop"][0])))
        return batch


def _erda_error(error: BaseException) -> ErdaError:
    """Extract the error of erda from the traceback that Ray passes on, or shorten Ray's own error to one line."""
    found = _OURS.findall(str(error))
    if found:
        kind, message = found[-1]
        return {"DataError": DataError, "ModelError": ModelError}.get(kind, ErdaError)(message)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ErdaError(f"the Ray job failed: {lines[-1] if lines else type(error).__name__}")
