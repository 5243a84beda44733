"""Choose a FAISS index by the number of rows, and tune its search effort.

| rows | factory string | why |
|---|---|---|
| up to 200,000 | `Flat` | exact, and fast enough: the 50 queries of a task take well under a second |
| more | `IVF<n>,PQ<dim / 4>x4fsr` | one bit per dimension, compared in registers: 96 bytes for 768 dimensions |

An IVF index holds quantised vectors. A search therefore retrieves spare rows and rescores all of them with the vectors
of the memory-mapped shards, which restores recall and makes scores exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from erda.corpus.vector_shards import VectorShards

EXACT_ROWS = 200_000
TARGET_RECALL = 0.98
POINTS_PER_LIST = 40
N_ITERATIONS = 8
_QUERIES = 400
_TOLERANCE = 1e-5  # products that differ by less are equal
_EFFORTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SPARES = (16, 32, 64, 128, 256)


def choose_factory(n_rows: int, dim: int) -> str:
    """Choose the factory string for a number of rows; see the table above.

    >>> choose_factory(50_000, 768), choose_factory(1_000_000, 384), choose_factory(1_000_000, 100)
    ('Flat', 'IVF2048,PQ96x4fsr', 'IVF2048,SQ8')
    """
    if n_rows <= EXACT_ROWS:
        return "Flat"
    codes = "SQ8" if dim % 8 else f"PQ{dim // 4}x4fsr"
    n_lists = 2 ** round(math.log2(2 * math.sqrt(n_rows)))
    return f"IVF{n_lists},{codes}"


def make_index(factory: str, shards: VectorShards) -> Any:
    """Make an empty index and train it on a random sample of the vectors."""
    import faiss

    index = faiss.index_factory(shards.dim, factory, faiss.METRIC_INNER_PRODUCT)
    if index.is_trained:
        return index
    lists = faiss.extract_index_ivf(index)
    lists.cp.niter = N_ITERATIONS
    lists.cp.max_points_per_centroid = POINTS_PER_LIST
    lists.cp.min_points_per_centroid = 1
    index.train(_sample(shards, max(lists.nlist * POINTS_PER_LIST, 16_384)))
    return index


def set_effort(index: Any, effort: int) -> None:
    """Set the number of lists that a search visits; 0 leaves an exact index alone."""
    import faiss

    if effort:
        faiss.ParameterSpace().set_index_parameter(index, "nprobe", effort)


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """Search parameters of an index: nprobe (0: exact), extra rows to rescore; and recall@1 against exact search."""

    effort: int = 0
    spare: int = 0
    recall: float = 1.0


def tune(index: Any, shards: VectorShards) -> SearchEffort:
    """Set the least effort of an IVF index that reaches `TARGET_RECALL` on a sample of rows, or the best effort.

    Effort is chosen first, with the maximum number of spare rows, then the number of spare rows.
    """
    asked = np.unique(np.linspace(0, len(shards) - 1, min(_QUERIES, len(shards))).astype(np.int64))
    queries = shards.vectors(asked)
    best = best_scores(shards, queries, but=asked)
    tried: list[SearchEffort] = []
    for effort in _EFFORTS:
        set_effort(index, effort)
        _, rows = index.search(queries, min(2 + _SPARES[-1], len(shards)))
        scores = rescore(shards, queries, rows)
        scores[rows == asked[:, None]] = -np.inf
        good = np.maximum.accumulate(scores, axis=1) >= best[:, None] - _TOLERANCE
        recalls = [float(good[:, : 2 + spare][:, -1].mean()) for spare in _SPARES]
        enough = next((i for i, recall in enumerate(recalls) if recall >= min(TARGET_RECALL, recalls[-1])), -1)
        tried.append(SearchEffort(effort, _SPARES[enough], recalls[enough]))
        if tried[-1].recall >= TARGET_RECALL:
            break
    most = max(one.recall for one in tried)
    chosen = next(one for one in tried if one.recall >= min(TARGET_RECALL, most - 0.002))
    set_effort(index, chosen.effort)
    return chosen


def best_scores(shards: VectorShards, queries: np.ndarray, *, but: np.ndarray) -> np.ndarray:
    """Exact score of the nearest row of each query i other than row `but[i]`: [n_queries]."""
    best = np.full(len(queries), -np.inf, np.float32)
    for start, vectors in shards:
        scores = queries @ vectors.T
        here = np.flatnonzero((but >= start) & (but < start + len(vectors)))
        scores[here, but[here] - start] = -np.inf
        np.maximum(best, scores.max(axis=1), out=best)
    return best


def rescore(shards: VectorShards, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Exact products of each query with its rows [n, k]: [n, k]; -inf where the row is -1."""
    unique, places = np.unique(np.maximum(rows, 0), return_inverse=True)
    vectors = shards.vectors(unique)[places.reshape(rows.shape)]
    scores: np.ndarray = np.einsum("nd,nkd->nk", queries, vectors)
    scores[rows < 0] = -np.inf
    return scores


def _sample(shards: VectorShards, n: int) -> np.ndarray:
    if len(shards) <= n:
        return shards.vectors(np.arange(len(shards)))
    return shards.vectors(np.sort(np.random.default_rng(0).choice(len(shards), n, replace=False)))
