from pathlib import Path

import numpy as np
import pytest

from erda.corpus.vector_shards import ShardPlan, VectorShards, write_shard
from erda.errors import DataError
from index import bench_index, cluster_centres, clustered_vectors


def test_synthetic_vectors_are_unit_vectors_in_clusters() -> None:
    rng = np.random.default_rng(0)
    centres = cluster_centres(rng, 5, 32)
    vectors = clustered_vectors(rng, centres, 400)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    products = vectors @ vectors.T
    assert products.std() > 0.2  # near inside a cluster, far between clusters


def test_figures_of_a_small_index() -> None:
    figures = bench_index(n_rows=3000, dim=32, factory="IVF32,PQ8x4fs", n_queries=40)
    assert figures.recall >= 0.9
    assert (figures.n_rows, figures.dim, figures.factory) == (3000, 32, "IVF32,PQ8x4fs")
    assert figures.speed > 0
    assert 0 < figures.index_mb < 3000 * 32 * 4 / 1e6
    text = "\n".join(figures.lines())
    assert "3,000 vectors of 32 numbers" in text
    assert f"{figures.recall:.4f}" in text


def test_exact_search_has_recall_one() -> None:
    assert bench_index(n_rows=2000, dim=16, factory="Flat", n_queries=20).recall == 1


def test_real_vectors_are_queried_for_their_nearest_other_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = clustered_vectors(rng, cluster_centres(rng, 20, 16), 1000).astype(np.float16)
    write_shard(tmp_path, ShardPlan(0, 1000), vectors)
    shards = VectorShards(tmp_path, 1000)
    figures = bench_index(vectors=shards, factory="IVF8,Flat", n_queries=30)
    assert figures.n_rows == 1000
    assert 0.8 <= figures.recall <= 1
    with pytest.raises(DataError, match="too few to ask"):
        bench_index(vectors=shards, n_queries=400)
