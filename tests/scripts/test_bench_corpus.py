import json

import pytest

from corpus import bench_corpus
from erda.errors import DataError


@pytest.fixture
def source(tmp_path):
    rows = [
        {
            "tokens": ["Sentence", str(i), f"A{i % 5}", "met", f"B{i % 3}", "."],
            "head": {"name": f"A{i % 5}", "id": None, "span": [2, 3]},
            "tail": {"name": f"B{i % 3}", "id": None, "span": [4, 5]},
        }
        for i in range(120)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_costs_of_a_corpus_are_measured(tmp_path, source):
    queries = tmp_path / "split.txt"
    queries.write_text("1\t2\tx\ta1\t0\tb2\t1\tQ1\tQ2\n1\t2\tx\tnobody\t0\tb2\t1\tQ1\tQ2\n")
    cost = bench_corpus(tmp_path / "corpus", sources=[source], queries=queries, repeats=2)
    assert cost.n_rows == 120
    assert cost.build is not None
    assert cost.build.seconds > 0
    assert cost.hits.pairs_found == 50
    assert cost.hits.rows_found == 50 * 8  # fifteen pairs of eight sentences
    assert cost.task is not None
    assert (cost.task.pairs_found, cost.task.rows_found) == (1, 8)
    assert 0 < cost.task.median_ms <= cost.task.p95_ms
    with pytest.raises(DataError, match="exists"):
        bench_corpus(tmp_path / "corpus", sources=[source])
