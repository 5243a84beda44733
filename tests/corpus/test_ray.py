"""The Ray engine on a real cluster of two nodes on loopback, against the local engine."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_corpus import random_rows, toy_store

from erda.corpus import ray_engine
from erda.corpus.mining import RowPairs
from erda.corpus.ray_engine import require_ray
from erda.corpus.shards import VectorShards, vectors_folder
from erda.corpus.similarity import load_similarity
from erda.corpus.store import CorpusStore
from erda.errors import DataError, SettingsError

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.timeout(900)  # half a minute on two idle cores: every process of Ray's imports a lot


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """Address and environment of two nodes with one CPU each; all that they start and write goes with them."""
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'erda[ray]'")
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets need a short path
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # for us alone
    environment = {**os.environ, **token, "OMP_NUM_THREADS": "1"}
    common = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    try:
        for role in (head, [f"--address=127.0.0.1:{port}"]):
            run([str(BIN / "ray"), "start", *role, *common], environment)
        yield f"127.0.0.1:{port}", environment
    finally:
        stop_processes_of(folder)  # `ray stop` would stop every other cluster of this machine too
        shutil.rmtree(folder, ignore_errors=True)


def run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def stop_processes_of(folder: str) -> None:
    """Kill the processes that have this temporary folder of Ray in their command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError, ProcessLookupError):
            if folder.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CorpusStore:
    return toy_store(tmp_path_factory.mktemp("ray"), random_rows(400, n_entities=12))


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    sys.path.append(str(Path(__file__).parent.parent / "encoders"))
    from tiny_models import build_model

    return str(build_model(tmp_path_factory.mktemp("model") / "tiny").path)


@pytest.fixture(scope="module")
def on_ray(
    cluster: tuple[str, dict[str, str]], store: CorpusStore, model_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the cluster made of every job (`ray_driver.py`)."""
    address, environment = cluster
    out = tmp_path_factory.mktemp("out") / "found.json"
    driver = str(Path(__file__).with_name("ray_driver.py"))
    run([sys.executable, driver, address, str(store.folder), model_folder, str(out)], environment)
    return json.loads(out.read_text())


@pytest.mark.slow
def test_vectors_from_two_nodes_equal_those_made_here(
    on_ray: dict[str, Any], store: CorpusStore, model_folder: str
) -> None:
    model = load_similarity(model_folder)
    assert len(on_ray["nodes"]) == 2
    assert on_ray["shards"] == 8
    far = VectorShards.open(vectors_folder(store.folder, model.fingerprint)).vectors(range(400))
    np.testing.assert_allclose(far, model.encode(store.rows(range(400))), atol=2e-3)


@pytest.mark.slow
def test_mining_on_two_nodes_draws_the_same_pairs(on_ray: dict[str, Any], store: CorpusStore) -> None:
    def columns(pairs: RowPairs) -> list[list[Any]]:
        return [pairs.first.tolist(), pairs.second.tolist(), pairs.shared.tolist()]

    positives = store.positive_pairs(seed=3, max_per_pair=2)
    assert len(positives) > 50
    assert on_ray["positives"] == columns(positives)
    negatives = store.hard_negatives(seed=3, limit=60, anchors=positives.first[:40])
    assert len(negatives) == 60
    assert on_ray["negatives"] == columns(negatives)


@pytest.mark.slow
def test_a_fault_on_a_node_is_said_in_our_words(on_ray: dict[str, Any]) -> None:
    kind, message = on_ray["fault"]
    assert kind == "ModelError"
    assert "has another similarity model" in message


@pytest.mark.slow
def test_the_command_uses_the_cluster(
    cluster: tuple[str, dict[str, str]], on_ray: dict[str, Any], store: CorpusStore, model_folder: str
) -> None:
    address, environment = cluster
    folder = vectors_folder(store.folder, load_similarity(model_folder).fingerprint)
    (folder / f"shard-{0:012d}.npy").unlink()
    command = [str(BIN / "erda"), "corpus", "index", str(store.folder), "--model", model_folder]
    run([*command, "--engine", "ray", "--address", address], environment)
    assert len(VectorShards.open(folder)) == 400
    assert (folder / "index.faiss").exists()


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'erda\[ray\]'"):
        require_ray()


def test_faults_of_ours_are_found_inside_those_of_ray() -> None:
    text = "ray::Worker() failed\n  File x, line 1\nerda.errors.DataError: node 1 does not see the corpus\nmore"
    found = ray_engine._in_our_words(RuntimeError(text))
    assert isinstance(found, DataError)
    assert str(found) == "node 1 does not see the corpus"
    assert "the Ray job failed: task failed" in str(ray_engine._in_our_words(RuntimeError("lines\n\ntask failed")))
