"""Replicas on a Ray cluster of two nodes with one writer."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from fastapi import Response
from toy_server import QUESTION, Served, serving, toy_store
from toy_words import FOUNDED, Words

from erda.app.extractor import Extractor
from erda.serve.application import build_application
from erda.serve.ray_engine import ToWriter, answer_of, is_change
from erda.serve.service import ServerSettings, Service
from ray_cluster import two_nodes


def test_a_replica_hands_changes_on_to_the_writer_and_follows_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    writer = build_application(ServerSettings(store), toy_store(store))
    written = list[str]()

    async def write(scope: Any, body: bytes) -> Response:
        written.append(f"{scope['method']} {scope['path']}")
        return await answer_of(writer, scope, body)

    with serving(Extractor.open(store, encoder=Words()), write=partial(ToWriter, write=write)) as served:
        assert served.post("/v1/predict", {"text": QUESTION})["version"] == 2
        taught = served.post("/v1/teach", {"relation": "owns", "examples": ["[[Ann]] owns the {{dog}} ."]})
        assert taught["version"] == 3
        assert served.post("/v1/predict", {"text": QUESTION})["version"] == 3
        assert served.call("DELETE", "/v1/relations", params={"relation": "owns"}).json() == {"version": 4}
        assert len(served.get("/v1/relations")["relations"]) == 3
        assert served.post("/v1/teach", {"relation": 3}, 422)["where"] == "relation"
        assert served.call("POST", "/v1/undo", {}, headers={"Origin": "http://evil.example"}).status_code == 403
    assert written == ["POST /v1/teach", "DELETE /v1/relations", "POST /v1/teach"]
    writer.state.service.stop()


def test_all_questions_of_a_replica_wait_for_the_first_teaching_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a question beside the one that noticed it nor a slow load gets the version before any teaching."""
    extractor = Extractor.open(tmp_path / "store", encoder=Words())
    service, refresh = Service(extractor, ServerSettings(extractor.folder)), extractor.refresh
    assert not service.newest().relations
    monkeypatch.setattr("erda.serve.service.FOLLOW_SECONDS", 0.01)
    monkeypatch.setattr(extractor, "refresh", lambda: (time.sleep(0.3), refresh()))
    toy_store(tmp_path / "store")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: service.newest().number, range(8)))
    assert found == [2] * 8
    service.stop()


def test_every_route_is_a_question_or_a_change(served: Served) -> None:
    changes = {
        path
        for path, methods in served.app.openapi()["paths"].items()
        for method in methods
        if is_change(method.upper(), path)
    }
    assert changes == {
        *("/v1/teach", "/v1/judge", "/v1/tune", "/v1/undo", "/v1/suggest", "/v1/relations", "/v1/examples/{number}"),
        *(f"/v1/relations/{name}" for name in ("rename", "merge", "describe", "declare")),
        *(f"/v1/review{name}" for name in ("", "/texts", "/next", "/judge", "/accept", "/undo")),
        *(f"/v1/jobs{name}" for name in ("", "/{id}", "/{id}/events")),
    }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_replicas_on_two_ray_nodes_share_a_store(tmp_path: Path) -> None:
    """Teachings from many connections are all kept, and every replica answers from the last version."""

    def post(path: str, body: Any, status: int = 200) -> Any:
        answer = requests.post(url + path, json=body, timeout=120)
        assert answer.status_code == status, answer.text
        return answer.json()

    def teach(number: int) -> int:
        body = {"relation": f"relation {number}", "examples": [f"[[a{number}]] is the {{{{b{number}}}}} of it ."]}
        return int(post("/v1/teach", body)["version"])

    with two_nodes() as (address, environment):
        line = [sys.executable, "-m", "erda", "serve", str(tmp_path / "store"), "--port", "0", "--no-browser"]
        line += ["--engine", "ray", "--address", address]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as server:
            try:
                url = server.stdout.readline().strip().rstrip("/")
                post("/v1/teach", {"relation": "founded by", "examples": FOUNDED})
                with ThreadPoolExecutor(8) as pool:
                    assert sorted(pool.map(teach, range(6))) == list(range(2, 8))
                    asked = list(pool.map(lambda _: post("/v1/predict", {"text": QUESTION, "top": 99}), range(24)))
                assert {(one["version"], len(one["ranked"])) for one in asked} == {(7, 7)}
                for path, body in (
                    ("/v1/teach", {"relation": "x", "examples": FOUNDED, "job": True}),
                    ("/v1/extract", {"documents": [{"text": "SpaceX was founded by Elon ."}]}),
                ):
                    id = post(path, body, 202)["id"]
                    events = requests.get(f"{url}/v1/jobs/{id}/events", timeout=60).text
                    assert '"state":"done"' in events.replace(" ", "")
                assert requests.get(f"{url}/health", headers={"Host": "evil.example"}, timeout=60).status_code == 421
            finally:
                server.send_signal(signal.SIGTERM)
                server.wait(120)
