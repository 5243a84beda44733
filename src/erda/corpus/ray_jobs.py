"""Embedding and mining of a corpus on a Ray cluster, through Ray Data.

The corpus folder must be on shared storage with the same path on every node (NFS, a mounted bucket), and `erda` must be
installed on every node. Workers run the code of the local engine, so results are equal.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from erda.cluster import connected, require_ray
from erda.corpus.manifest import StoredFile
from erda.corpus.mining import RowPairs, hard_negatives, positive_pairs
from erda.corpus.sql import connect, file_list, quoted
from erda.corpus.vector_shards import Embedder, Shard, ShardPlan, ShardWorker
from erda.encoders.devices import device_kind
from erda.errors import DataError, ErdaError, ModelError
from erda.files import user_path

if TYPE_CHECKING:
    from erda.corpus.corpus_store import CorpusStore

_COLUMNS: dict[str, Any] = {"first": np.int64, "second": np.int64, "shared": np.str_, "place": np.uint64}  # of RowPairs
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

    def positive_pairs(
        self, store: CorpusStore, *, seed: int, limit: int | None = None, max_per_pair: int = 3, n_buckets: int = 32
    ) -> RowPairs:
        """Draw the pairs of `CorpusStore.positive_pairs` in `n_buckets` buckets of heads."""
        mine = partial(positive_pairs, seed=seed, limit=limit, max_per_pair=max_per_pair)
        return self._mine(store, ("both",), mine, limit=limit, n_buckets=n_buckets)

    def hard_negatives(
        self,
        store: CorpusStore,
        *,
        seed: int,
        limit: int | None = None,
        anchors: Sequence[int] | np.ndarray | None = None,
        n_buckets: int = 32,
    ) -> RowPairs:
        """Draw the pairs of `CorpusStore.hard_negatives` in buckets of heads and buckets of tails."""
        mine = partial(hard_negatives, seed=seed, anchors=None if anchors is None else np.asarray(anchors, np.int64))
        return self._mine(store, ("head", "tail"), mine, limit=limit, n_buckets=n_buckets)

    def _mine(
        self,
        store: CorpusStore,
        kinds: Sequence[str],
        mine: Callable[..., RowPairs],
        *,
        limit: int | None,
        n_buckets: int,
    ) -> RowPairs:
        """Mine every bucket for each shared role, and sort the pairs into the order of the local engine."""
        paths = [path.resolve() for path in store.manifest.part_paths(store.folder)]
        works = [{"shared": kind, "bucket": bucket} for kind in kinds for bucket in range(n_buckets)]
        with self._cluster() as ray:
            found = ray.data.from_items(works, override_num_blocks=len(works)).map_batches(
                partial(_mine_bucket, paths=paths, mine=mine, n_buckets=n_buckets), batch_size=1, num_cpus=1
            )
            batches = [batch for batch in found.iter_batches(batch_size=None) if len(batch.get("first", ()))]
        pairs = {
            name: np.concatenate([np.empty(0, kind), *(batch[name] for batch in batches)]).astype(kind)
            for name, kind in _COLUMNS.items()
        }
        order = np.lexsort((pairs["shared"], pairs["first"], pairs["place"]))[:limit]
        return RowPairs(**{name: values[order] for name, values in pairs.items()})

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


def _mine_bucket(
    work: dict[str, Any], *, paths: Sequence[Path], mine: Callable[..., RowPairs], n_buckets: int
) -> dict[str, np.ndarray]:
    """Run a query of `mining` over one bucket: the rows whose head (or tail) hashes to it.

    A bucket of heads holds all rows of each head, so its hard negatives that share a tail are incomplete and dropped.
    """
    (shared,), (bucket,) = work["shared"], work["bucket"]
    key = "tail_key" if shared == "tail" else "head_key"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bucket.parquet"
        connection = connect(spill=Path(folder) / "spill")
        connection.execute(
            f"COPY (SELECT row, head_key, tail_key FROM read_parquet({file_list(paths)}) "
            f"WHERE hash({key}) % {n_buckets:d} = {bucket:d}) TO {quoted(path)} (FORMAT parquet)"
        )
        pairs = mine(connection, [path])
    kept = pairs.shared == shared
    return {name: getattr(pairs, name)[kept].astype(kind) for name, kind in _COLUMNS.items()}


def _erda_error(error: BaseException) -> ErdaError:
    """Extract the error of erda from the traceback that Ray passes on, or shorten Ray's own error to one line."""
    found = _OURS.findall(str(error))
    if found:
        kind, message = found[-1]
        return {"DataError": DataError, "ModelError": ModelError}.get(kind, ErdaError)(message)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ErdaError(f"the Ray job failed: {lines[-1] if lines else type(error).__name__}")
