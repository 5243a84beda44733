"""Embedding of a corpus on a Ray cluster, through Ray Data.

The corpus folder must be on shared storage with the same path on every node (NFS, a mounted bucket), and `erda` must be
installed on every node. Workers run the code of the local engine, so results are equal.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from erda.cluster import connected, require_ray
from erda.corpus.manifest import StoredFile
from erda.corpus.vector_shards import Embedder, Shard, ShardPlan, ShardWorker
from erda.encoders import device_kind
from erda.errors import DataError, ErdaError, ModelError
from erda.files import user_path

_OURS = re.compile(r"^\s*erda\.errors\.(\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJobs:
    """Jobs on a cluster. `address` is "auto", "local" (a cluster of this machine alone) or HOST:PORT.

    `n_workers` is the number of embedding workers, each with its own model (default: one per GPU, or per CPU).
    """

    address: str = "auto"
    n_workers: int | None = None

    def embedder(self, worker: ShardWorker) -> Embedder:
        """Make an embedder for `embed_corpus` whose workers compute and write the shards."""
        device_kind(worker.device)  # reject an invalid name here, not on every node
        model = worker.model
        if model is not None and user_path(model).is_dir():
            model = str(user_path(model).resolve())
        return partial(self._embed, replace(worker, corpus=worker.corpus.resolve(), model=model))

    def _embed(self, worker: ShardWorker, folder: Path, plans: Sequence[ShardPlan]) -> Iterator[Shard]:
        n_gpus = int(device_kind(worker.device) == "cuda")
        with self._cluster() as ray:
            n_workers = self.n_workers or int(ray.cluster_resources().get("GPU" if n_gpus else "CPU", 1))
            work = ray.data.from_items([asdict(plan) for plan in plans], override_num_blocks=len(plans))
            done = work.map_batches(
                _ShardActor,
                fn_constructor_args=(worker, folder.resolve()),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=max(1, min(n_workers, len(plans)))),
                num_cpus=1,
                num_gpus=n_gpus,
            )
            for row in done.iter_rows():
                plan = ShardPlan(int(row["start"]), int(row["stop"]), str(row["version"]))
                yield Shard(plan, StoredFile(str(row["path"]), int(row["size"]), str(row["sha256"])))

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        """Connect to the cluster for one job; raise its errors as errors of erda."""
        require_ray("ray.data")
        with connected(self.address) as ray:
            ray.data.DataContext.get_current().enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            try:
                yield ray
            except ray.exceptions.RayError as error:
                raise _erda_error(error) from error


@dataclass
class _ShardActor:
    """A `ShardWorker` as a callable for Ray Data."""

    worker: ShardWorker
    folder: Path

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed a shard: columns of its plan in, columns of plan and file out."""
        (start,), (stop,), (version,) = batch["start"], batch["stop"], batch["version"]
        shard = self.worker.embed(self.folder, ShardPlan(int(start), int(stop), str(version)))
        return {name: [value] for name, value in {**asdict(shard.plan), **asdict(shard.file)}.items()}


def _erda_error(error: BaseException) -> ErdaError:
    """Extract the error of erda from the traceback that Ray passes on, or shorten Ray's own error to one line."""
    found = _OURS.findall(str(error))
    if found:
        kind, message = found[-1]
        return {"DataError": DataError, "ModelError": ModelError}.get(kind, ErdaError)(message)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ErdaError(f"the Ray job failed: {lines[-1] if lines else type(error).__name__}")
