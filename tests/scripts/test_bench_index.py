"""Recall, speed and size of a vector index."""

from index import bench_index


def test_figures_of_a_small_index() -> None:
    figures = bench_index(n_rows=3000, dim=32, factory="IVF32,PQ8x4fs", n_queries=40)
    assert figures.recall >= 0.9
    assert bench_index(n_rows=2000, dim=16, factory="Flat", n_queries=20).recall == 1
    assert (figures.n_rows, figures.dim, figures.factory) == (3000, 32, "IVF32,PQ8x4fs")
    assert figures.speed > 0
    assert 0 < figures.index_mb < 3000 * 32 * 4 / 1e6
    text = "\n".join(figures.lines())
    assert "3,000 vectors of 32 numbers" in text
    assert f"{figures.recall:.4f}" in text
