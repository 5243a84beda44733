"""The Ray engine on a real cluster of two local nodes, compared with the local engine."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import build_model
from toy_corpus import random_rows, toy_store

from erda.corpus import vector_shards
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.similarity import load_similarity
from erda.corpus.vector_index import VectorIndex
from erda.corpus.vector_shards import VectorShards, vectors_folder
from erda.errors import DataError
from ray_cluster import BIN, run_command, two_nodes

pytestmark = pytest.mark.timeout(900)  # half a minute on two idle cores; Ray processes import a lot


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    with two_nodes() as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CorpusStore:
    return toy_store(tmp_path_factory.mktemp("ray"), random_rows(400, n_entities=12))


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_model(tmp_path_factory.mktemp("model") / "tiny").path)


@pytest.fixture(scope="module")
def on_ray(
    cluster: tuple[str, dict[str, str]], store: CorpusStore, model_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Results of every job on the cluster (`ray_driver.py`)."""
    address, environment = cluster
    out = tmp_path_factory.mktemp("out") / "found.json"
    driver = str(Path(__file__).with_name("ray_driver.py"))
    run_command([sys.executable, driver, address, str(store.folder), model_folder, str(out)], environment)
    return json.loads(out.read_text())


@pytest.mark.long
def test_vectors_from_two_nodes_equal_local_ones(on_ray: dict[str, Any], store: CorpusStore, model_folder: str) -> None:
    model = load_similarity(model_folder)
    assert len(on_ray["nodes"]) == 2
    assert on_ray["shards"] == 8
    far = VectorShards(vectors_folder(store, model.fingerprint), 400).vectors(range(400))
    np.testing.assert_allclose(far, model.encode(store.rows(range(400))), atol=2e-3)
    kind, message = on_ray["fault"]
    assert kind == "ModelError"
    assert "has another similarity model" in message


@pytest.mark.long
def test_the_command_uses_the_cluster(
    cluster: tuple[str, dict[str, str]], on_ray: dict[str, Any], store: CorpusStore, model_folder: str
) -> None:
    address, environment = cluster
    model = load_similarity(model_folder)
    shutil.rmtree(vectors_folder(store, model.fingerprint))
    command = [str(BIN / "erda"), "corpus", "index", str(store.folder), "--model", model_folder]
    run_command([*command, "--address", address], environment)
    assert VectorIndex.open(store, model).about.n_rows == 400


def test_errors_of_erda_are_extracted_from_those_of_ray() -> None:
    text = "ray::Worker() failed\n  File x, line 1\nerda.errors.DataError: node 1 does not see the corpus\nmore"
    found = vector_shards._erda_error(RuntimeError(text))
    assert isinstance(found, DataError)
    assert str(found) == "node 1 does not see the corpus"
    assert "the Ray job failed: task failed" in str(vector_shards._erda_error(RuntimeError("lines\n\ntask failed")))
