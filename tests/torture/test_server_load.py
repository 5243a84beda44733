"""A server under load: long requests, slow readers, and a stop while many teach."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import sleep

import pytest
import requests
from test_jobs import SlowWords  # type: ignore[import-not-found]
from toy_server import QUESTION, Served, serving, toy_store  # type: ignore[import-not-found]

from erda.app.extractor import Extractor


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(toy_store(tmp_path / "store")) as found:
        yield found


def test_listings_and_answers_do_not_wait_for_long_requests(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    n_heavy, go_on = served.app.state.service.settings.n_heavy, Event()
    monkeypatch.setattr("erda.serve.routes.suggest", lambda *given, **options: go_on.wait(60) and [])
    body = {"relation": "born in", "texts": ["Ada met Bob ."]}
    with ThreadPoolExecutor(n_heavy) as pool:
        try:
            waiting = [pool.submit(requests.post, f"{served.url}/v1/suggest", json=body) for _ in range(n_heavy)]
            while served.app.state.service._n_heavy < n_heavy:
                sleep(0.01)
            full = served.call("POST", "/v1/suggest", body)
            assert (full.status_code, full.json()["error"], full.headers["retry-after"]) == (503, "queue_full", "1")
            for path in ("/ready", "/v1/relations", "/v1/history", "/v1/examples?relation=born in"):
                served.get(path)
            served.post("/v1/extract", {"text": "SpaceX was founded by Elon .", "entities": ["SpaceX", "Elon"]})
            served.post("/v1/predict", {"text": QUESTION})
        finally:
            go_on.set()
    assert {one.result().status_code for one in waiting} == {200}


def test_an_export_is_built_once_for_all_slow_readers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    built = list[Path]()

    def export(version: object, folder: Path) -> None:
        folder.mkdir()
        built.append(folder)

    monkeypatch.setattr("erda.serve.routes.export", export)
    slow = [requests.get(f"{served.url}/v1/export", stream=True, timeout=60) for _ in range(12)]
    assert len(built) == 1
    assert {one.content for one in slow} == {slow[0].content}


def test_a_stop_rejects_the_teachings_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = toy_store(tmp_path / "store").folder
    monkeypatch.setattr("erda.serve.application.STOP_SECONDS", 1)
    slow = SlowWords()
    body = {"relation": "near", "examples": ["[[a]] y {{b}}", "[[c]] y {{d}}"]}
    with ThreadPoolExecutor(20) as pool, serving(Extractor.open(folder, encoder=slow)) as served:
        served.wait_until_ready()
        slow.waits = True
        answers = [pool.submit(requests.post, f"{served.url}/v1/teach", json=body) for _ in range(20)]
        assert slow.reached.wait(60)
        while served.app.state.service._n_writes < len(answers):
            sleep(0.01)
        served.server.should_exit = True
        found = [one.result() for one in answers]
        slow.go_on.set()
    assert {(one.status_code, one.json()["error"]) for one in found} == {(503, "stopping")}
    assert not [one for one in caplog.records if one.exc_info]
