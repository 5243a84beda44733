"""Figures of the vector index: recall, speed against exact search, memory and size, on synthetic or real vectors.

Synthetic vectors form nested clusters, with noise that is strong in few directions and weak in many, like sentence
vectors; queries come from the same distribution. Real vectors are those of an indexed corpus; each query is a row and
is excluded from its own results. Exact and approximate search process the same batches in turn.

python benchmarks/index.py
python benchmarks/index.py --rows 200000 --dim 768 --factory IVF1024,SQ8
python benchmarks/index.py --corpus corpora/wiki
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.corpus_store import CorpusStore, StoredFile
from erda.corpus.vector_index import IndexAbout, SearchEffort, VectorIndex, choose_factory, index_shards
from erda.corpus.vector_shards import VectorShards, plan_shards, write_shard
from erda.errors import DataError, ErdaError

N_ROUNDS = 3
_TOPICS, _CENTRES_PER_MILLION = 400, 20_000


@dataclass(frozen=True, slots=True)
class IndexFigures:
    """Measurements. `speed` is the time of exact search divided by that of the index, median of the rounds."""

    n_rows: int
    dim: int
    factory: str
    search: SearchEffort
    recall: float
    speed: float
    milliseconds: float  # per query, in batches
    exact_milliseconds: float
    build_seconds: float
    peak_memory_mb: float  # of the process that builds and searches the index
    index_mb: float

    def lines(self) -> list[str]:
        """Figures as lines of text."""
        return [
            f"{self.n_rows:,} vectors of {self.dim} numbers, {self.factory}, effort {self.search.effort}",
            f"recall@1 against exact search   {self.recall:.4f}",
            f"speed against exact search      {self.speed:.1f} times "
            f"({self.milliseconds:.3f} ms a query; exact {self.exact_milliseconds:.2f} ms)",
            f"built in                        {self.build_seconds:.0f} s",
            f"peak memory, built and searched {self.peak_memory_mb:,.0f} MB",
            f"index in memory                 {self.index_mb:,.0f} MB",
        ]


def bench_index(
    *,
    n_rows: int = 1_000_000,
    dim: int = 384,
    factory: str | None = None,
    n_queries: int = 500,
    seed: int = 0,
    vectors: VectorShards | None = None,
) -> IndexFigures:
    """Build and search an index of `n_rows` synthetic vectors, or of `vectors`."""
    with _shards(vectors, n_rows, dim, seed, N_ROUNDS * n_queries) as (shards, queries, own_rows):
        factory = factory or choose_factory(len(shards), shards.dim)
        start = time.perf_counter()
        faiss_index, search = index_shards(shards, factory)
        build_seconds = time.perf_counter() - start
        file = StoredFile("", 0, "")
        about = IndexAbout("", "", shards.dim, "", len(shards), factory, search, file)
        index = VectorIndex(about, faiss_index, shards)
        index.search(queries[:n_queries], 2)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
        index_mb = _size_mb(faiss_index)
        hits, times = _compare(index, shards, queries, own_rows)
    speeds = [exact / approximate for exact, approximate in times]
    return IndexFigures(
        len(shards),
        shards.dim,
        factory,
        search,
        float(np.mean(hits)),
        float(np.median(speeds)),
        1e3 * float(np.median([approximate for _, approximate in times])) / n_queries,
        1e3 * float(np.median([exact for exact, _ in times])) / n_queries,
        build_seconds,
        peak,
        index_mb,
    )


def clustered_vectors(rng: np.random.Generator, centres: np.ndarray, n: int) -> np.ndarray:
    """Sample `n` unit vectors around `centres`: [n, dim] float32."""
    dim = centres.shape[1]
    noise = rng.standard_normal((n, dim), dtype=np.float32) * _spectrum(dim)
    vectors = centres[rng.integers(0, len(centres), n)] + 0.7 * noise
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cluster_centres(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """Centres of clusters, grouped by topic: [n, dim]."""
    topics = rng.standard_normal((_TOPICS, dim), dtype=np.float32) * _spectrum(dim)
    around = rng.standard_normal((n, dim), dtype=np.float32) * _spectrum(dim)
    return topics[rng.integers(0, _TOPICS, n)] + 0.8 * around


def _spectrum(dim: int) -> np.ndarray:
    return (1 / np.sqrt(1 + np.arange(dim) / 8)).astype(np.float32)


@contextmanager
def _shards(
    shards: VectorShards | None, n_rows: int, dim: int, seed: int, n_queries: int
) -> Iterator[tuple[VectorShards, np.ndarray, np.ndarray]]:
    """Shards, queries [n_queries, dim] and the row of each query (-1: none)."""
    rng = np.random.default_rng(seed)
    if shards is not None:
        if len(shards) < 2 * n_queries:
            raise DataError(f"{shards.folder}: {len(shards):,} vectors are too few to ask {n_queries:,} questions.")
        rows = np.sort(rng.choice(len(shards), n_queries, replace=False))
        rng.shuffle(rows)
        yield shards, shards.vectors(rows), rows
        return
    made = Path(tempfile.mkdtemp(prefix="erda-bench-"))
    try:
        centres = cluster_centres(rng, max(50, n_rows * _CENTRES_PER_MILLION // 1_000_000), dim)
        for plan in plan_shards(n_rows):
            vectors = clustered_vectors(rng, centres, plan.stop - plan.start)
            write_shard(made, plan, vectors.astype(np.float16))
        queries = clustered_vectors(rng, centres, n_queries)
        yield VectorShards(made, n_rows), queries, np.full(n_queries, -1)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _compare(
    index: VectorIndex, shards: VectorShards, queries: np.ndarray, own_rows: np.ndarray
) -> tuple[list[bool], list[tuple[float, float]]]:
    """Whether the index found the nearest row of each query, and seconds (exact, index) of each round."""
    import faiss

    exact = faiss.IndexFlatIP(shards.dim)
    for _, vectors in shards:
        exact.add(vectors)
    hits: list[bool] = []
    times: list[tuple[float, float]] = []
    for some, own in zip(np.split(queries, N_ROUNDS), np.split(own_rows, N_ROUNDS), strict=True):
        start = time.perf_counter()
        scores, rows = exact.search(some, 2)
        middle = time.perf_counter()
        found_scores, found_rows = index.search(some, 2)
        times.append((middle - start, time.perf_counter() - middle))
        best = np.where(rows == own[:, None], -np.inf, scores).max(axis=1)
        found = np.where(found_rows == own[:, None], -np.inf, found_scores).max(axis=1)
        hits += (found >= best - 1e-5).tolist()
    return hits, times


def _size_mb(index: Any) -> float:
    import faiss

    writer = faiss.VectorIOWriter()
    faiss.write_index(index, writer)
    return writer.data.size() / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="N", type=int, default=1_000_000, help="made-up vectors (default: 1,000,000)")
    parser.add_argument("--dim", metavar="N", type=int, default=384, help="numbers a vector (default: 384)")
    parser.add_argument("--factory", metavar="STRING", help="Flat or an IVF index of FAISS (default: chosen by size)")
    parser.add_argument("--corpus", metavar="DIR", type=Path, help="real vectors: those of an indexed corpus")
    parser.add_argument("--model", metavar="NAME", help="of these vectors (default: the model that ships)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the made-up vectors and the queries")
    options = parser.parse_args(arguments)
    try:
        vectors = None
        if options.corpus:
            from erda.corpus.similarity import load_similarity

            vectors = VectorIndex.open(CorpusStore.open(options.corpus), load_similarity(options.model)).shards
        figures = bench_index(
            n_rows=options.rows, dim=options.dim, factory=options.factory, seed=options.seed, vectors=vectors
        )
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    print("\n".join(figures.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
