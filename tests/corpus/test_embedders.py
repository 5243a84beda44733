"""The Ray engine on a real cluster of two local nodes, compared with the local engine."""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import build_model
from toy_corpus import random_rows, toy_store

from erda.corpus import vector_shards
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_index import VectorIndex
from erda.corpus.vector_shards import ShardWorker, plan_shards, ray_embedder
from erda.errors import DataError, ErdaError
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
    np.testing.assert_allclose(index.shards.vectors(range(400)), model.encode(store.rows(range(400))), atol=2e-3)


def test_errors_of_workers_lose_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class RayError(Exception):
        cause: Exception | None = None

    def lost(done: object) -> None:
        raise failed

    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=RayError), get=lost, cluster_resources=dict)
    ray.remote = lambda **_: lambda function: SimpleNamespace(remote=lambda *_: "task")
    ray.wait = lambda running: (running, [])
    monkeypatch.setattr(vector_shards, "connected", lambda address: nullcontext(ray))
    embed = ray_embedder(ShardWorker(corpus=tmp_path, digest="", model=None, fingerprint=""), "local")
    failed = RayError("a traceback")
    with pytest.raises(ErdaError, match="the Ray job failed: a traceback"):
        list(embed(plan_shards(100)))
    failed.cause = DataError("node 1 does not see the corpus")
    with pytest.raises(DataError, match=r"^node 1 does not see"):
        list(embed(plan_shards(100)))
