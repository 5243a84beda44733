"""The Ray engine on a real cluster of two local nodes, compared with the local engine."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build_model
from toy_corpus import random_rows, toy_store

from erda.corpus import vector_shards
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_index import VectorIndex
from erda.errors import DataError
from ray_cluster import run_command, two_nodes

pytestmark = pytest.mark.timeout(900)  # half a minute on two idle cores; Ray processes import a lot
SMALL_SHARDS = """
import sys
from erda.cli.main import main
from erda.corpus.vector_shards import embed_corpus
embed_corpus.__kwdefaults__["shard_rows"] = 50
sys.exit(main())
"""


@pytest.mark.long
def test_vectors_from_two_nodes_equal_local_ones(tmp_path: Path) -> None:
    store = toy_store(tmp_path, random_rows(400, n_entities=12))
    name = str(build_model(tmp_path / "tiny").path)
    with two_nodes() as (address, environment):
        options = ["--model", name, "--address", address]
        run_command([sys.executable, "-c", SMALL_SHARDS, "corpus", "index", str(store.folder), *options], environment)
    model = load_similarity(name)
    index = VectorIndex.open(store, model)
    assert len(index.shards.paths) == 8
    expected = model.encode(store.rows(range(400)))
    np.testing.assert_allclose(index.shards.vectors(range(400)), expected, atol=2e-3)


def test_errors_of_erda_are_extracted_from_those_of_ray() -> None:
    text = "ray::Worker() failed\n  File x, line 1\nerda.errors.DataError: node 1 does not see the corpus\nmore"
    found = vector_shards._erda_error(RuntimeError(text))
    assert isinstance(found, DataError)
    assert str(found) == "node 1 does not see the corpus"
    assert "the Ray job failed: task failed" in str(vector_shards._erda_error(RuntimeError("lines\n\ntask failed")))
