"""One test for each fault that such servers had, most of them over every route of the OpenAPI document.

Invalid bodies of every shape are in test_openapi.py (Schemathesis).
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import quote

import pytest
import requests
from toy_server import QUESTION, Served, serving, wait_for

from erda.app.extractor import Extractor

TOKEN = "a-token-of-more-than-16-letters"


def routes(served: Served) -> Iterator[tuple[str, str]]:
    """Every method and path, with values in the place of path parameters."""
    for path, methods in served.app.openapi()["paths"].items():
        for method in methods:
            yield method.upper(), path.replace("{number}", "0").replace("{id}", "0123456789abcdef")


def statuses(served: Served, headers: dict[str, str]) -> dict[tuple[str, str], int]:
    """The status of every route, called with these headers."""
    found = {}
    for method, path in [*routes(served), ("GET", "/"), ("GET", "/page/index.html")]:
        body = {} if method == "POST" else None
        answer = served.call(method, path, body, headers=headers)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert not {"access-control-allow-origin", "server"} & set(answer.headers)
        if answer.status_code >= 400:
            assert answer.json().keys() >= {"error", "message", "where"}, (method, path, answer.text)
        found[method, path] = answer.status_code
    return found


def test_foreign_names_and_pages_get_nothing(served: Served) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8111", "", "0.0.0.0"):
        assert set(statuses(served, {"Host": host}).values()) == {421}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert set(statuses(served, {"Origin": origin}).values()) == {403}
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
            assert served.call(method, "/v1/relations", headers={"Origin": origin}).status_code == 403
    foreign = statuses(served, {"Sec-Fetch-Site": "cross-site"})
    assert {status for (_, path), status in foreign.items() if path.startswith("/v1/")} == {403}
    assert served.call("GET", "/v1/relations", headers={"Origin": served.url}).json()["version"] == 2


def test_every_route_but_health_needs_the_token(extractor: Extractor) -> None:
    with serving(extractor, token=TOKEN) as served:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Cookie": "erda-0=1"}):
            found = statuses(served, headers)
            assert {path for (_, path), status in found.items() if status != 401} == {"/health", "/ready"}
        for good in ({"headers": {"Authorization": f"Bearer {TOKEN}"}}, {"auth": ("anyone", TOKEN)}):
            assert served.call("GET", "/v1/relations", **good).status_code == 200
        assert served.call("GET", "/?token=wrong").status_code == 401
        opened = served.http.get(f"{served.url}/?token={TOKEN}", timeout=60)  # follows to the page, with a cookie
        assert (opened.url, opened.status_code) == (f"{served.url}/", 200)
        assert TOKEN not in str(served.http.cookies)
        assert served.call("GET", "/v1/relations").status_code == 200


touched = list[str]()  # by the process, while `watching` is not empty
watching = list[str]()
WATCHED = ("open", "socket.connect", "socket.getaddrinfo", "os.listdir", "os.scandir")


@sys.addaudithook
def watch(event: str, given: tuple[object, ...]) -> None:
    if watching and event in WATCHED and watching[0] in str(given):
        touched.append(f"{event} {given}")


def test_no_path_and_no_url_is_taken_from_a_request(served: Served, tmp_path: Path) -> None:
    secret = tmp_path / "canary-7f3a"
    secret.write_text('{"text": "[[a]] b {{c}}"}\n')
    url = "http://canary-7f3a.invalid/model"
    schemas = served.app.openapi()["components"]["schemas"]
    watching.append("canary-7f3a")
    try:
        for path, methods in served.app.openapi()["paths"].items():
            kinds = methods.get("post", {}).get("requestBody", {"content": {}})["content"]
            assert set(kinds) <= {"application/json"}, "nothing is uploaded"
            for kind in kinds.values():
                for example in schemas[kind["schema"]["$ref"].rpartition("/")[2]]["examples"]:
                    raw = json.dumps(example)
                    values = [one for one, colon in re.findall(r'("(?:[^"\\]|\\.)*")(:?)', raw) if not colon]
                    for value, text in product(values, (str(secret), url)):
                        body = json.loads(raw.replace(value, json.dumps(text)))
                        assert served.call("POST", path, body).status_code < 500, (path, body)
        for text in (str(secret), url, f"../{secret.name}"):
            for method in ("GET", "DELETE"):
                served.call(method, "/v1/relations", params={"relation": text})
                served.call(method, "/v1/examples", params={"relation": text})
                served.call(method, f"/v1/jobs/{quote(text, safe='')}")
                served.call(method, f"/page/{quote(text, safe='')}")
    finally:
        watching.clear()
    assert touched == []


def test_only_json_is_read(served: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        for method, path in routes(served):
            if method == "POST":
                answer = served.http.post(served.url + path, data=b"{}", headers={"Content-Type": kind}, timeout=60)
                assert answer.status_code == 415
    for body, said in (
        (b"", "is missing: send a JSON object"),
        (b'{\n"a"', "line 2 column 4"),
        *((one, "body") for one in (b"[" * 100_000, b'{"text": "\xff"}', b"9" * 5_000)),
    ):
        answer = served.http.post(f"{served.url}/v1/predict", data=body, headers={"Content-Type": "application/json"})
        failure = answer.json()
        assert (answer.status_code, failure["error"], failure["where"]) == (400, "unreadable", "body")
        assert said in failure["message"]
    for method in ("PUT", "PATCH"):
        assert served.http.request(method, f"{served.url}/v1/predict", data=b"text").status_code == 405


def test_control_characters_and_lone_surrogates_are_invalid_not_fatal(served: Served) -> None:
    for text in ("[[a\\u0000]] b {{c}}", "[[\\ud800]] b {{c}}", "[[a]] b {{c}} \\u001b[31m"):
        raw = f'{{"text": "{text}"}}'.encode()
        answer = served.http.post(f"{served.url}/v1/predict", data=raw, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid")


def test_large_and_many_are_rejected_with_the_known_statuses(extractor: Extractor) -> None:
    with serving(extractor, body_size=2_000, n_batch=3, text_size=100, n_job=2) as served:
        for path in [path for method, path in routes(served) if method == "POST"]:
            assert served.post(path, {"text": "x" * 3_000}, 413)["error"] == "too_large"
        chunks = served.http.post(
            f"{served.url}/v1/predict", data=iter([b"x" * 1_500] * 2), headers={"Content-Type": "application/json"}
        )
        assert chunks.status_code == 413
        assert served.post("/v1/predict", {"questions": [QUESTION] * 4}, 422)["error"] == "too_many"
        assert served.post("/v1/extract", {"text": "x " * 60}, 422)["error"] == "too_large"
        assert served.post("/v1/extract", {"documents": [{"text": "x"}] * 3}, 422)["error"] == "too_many"
    with serving(extractor, n_active=0) as served:
        full = served.call("POST", "/v1/predict", {"text": QUESTION})
        assert (full.status_code, full.json()["error"], full.headers["retry-after"]) == (503, "queue_full", "1")
    with serving(extractor, n_jobs=0) as served:
        assert served.post("/v1/extract", {"documents": [{"text": "x"}]}, 503)["error"] == "queue_full"


def test_fifty_teachings_at_once_are_all_kept(served: Served) -> None:
    def teach(number: int) -> Any:
        body = {"relation": f"relation {number}", "examples": [f"[[a{number}]] is {{{{b{number}}}}} ."]}
        return requests.post(f"{served.url}/v1/teach", json=body, timeout=60).json()

    with ThreadPoolExecutor(32) as pool:
        versions = [one["version"] for one in pool.map(teach, range(50))]
        asked = served.post("/v1/predict", {"text": QUESTION, "top": 200})
    assert sorted(versions) == list(range(3, 53))
    assert (asked["version"], len(asked["ranked"])) == (52, 53)


def test_answers_go_on_while_the_store_is_gone_and_follow_it_when_it_is_back(
    served: Served, extractor: Extractor
) -> None:
    store = extractor.folder
    copy = store.with_name("copy")
    shutil.copytree(store, copy)
    served.post("/v1/teach", {"relation": "owns", "examples": ["[[Ann]] owns the {{dog}} ."]})
    shutil.rmtree(store)
    answer = served.post("/v1/predict", {"text": QUESTION})
    assert (answer["version"], answer["relation"]) == (3, "founded by")
    failure = served.post("/v1/teach", {"relation": "has", "examples": ["[[Ann]] has a {{cat}} ."]}, 503)
    assert failure["error"] == "store_unavailable"
    assert str(store) not in failure["message"]
    ready = served.call("GET", "/ready")
    assert (ready.status_code, ready.json()["error"]) == (503, "store_unavailable")
    assert "the store was deleted or moved" in ready.json()["message"]
    assert served.post("/v1/review/next", {}, 503)["error"] == "store_unavailable"
    assert not store.exists()
    shutil.copytree(copy, store)
    assert served.post("/v1/predict", {"text": QUESTION})["version"] == 2
    assert served.post("/v1/teach", {"relation": "has", "examples": ["[[Ann]] has a {{cat}} ."]})["version"] == 3
    assert served.get("/ready")["status"] == "ready"


def test_a_full_disk_is_told_and_nothing_is_lost(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Bern is the capital of Switzerland ."
    judgement = {"key": served.post("/v1/review/texts", {"texts": [text]})["pair"]["key"], "holds": True}

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("erda.files.os.fsync", full)
    failure = served.post("/v1/teach", {"relation": "owns", "examples": ["[[Ann]] owns the {{dog}} ."]}, 503)
    assert failure["error"] == "cannot_write"
    job = served.post("/v1/teach", {"relation": "owns", "examples": ["[[Ann]] owns the {{dog}} ."], "job": True}, 202)
    assert wait_for(served, job["id"])["failure"]["error"] == "cannot_write"
    assert served.post("/v1/predict", {"text": QUESTION})["version"] == 2
    assert served.post("/v1/review/judge", judgement, 503)["error"] == "cannot_write"
    monkeypatch.undo()
    assert served.post("/v1/review/judge", judgement)["n_judged"] == 1
    assert served.post("/v1/teach", {"relation": "owns", "examples": ["[[Ann]] owns the {{dog}} ."]})["n_examples"] == 1


KILLED = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from toy_server import serving, toy_store
with serving(toy_store(Path(sys.argv[1]))) as served:
    print(served.url, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("n_kills", [1, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(1_500)])])
def test_kill_9_while_teaching_loses_no_answered_teaching(tmp_path: Path, n_kills: int) -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "app")]
    for kill in range(n_kills):
        store, known = tmp_path / str(kill), list[str]()
        command = [sys.executable, "-c", KILLED.format(paths=paths), str(store)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            url = server.stdout.readline().strip()
            Timer(0.2 + 0.02 * (kill % 20), server.kill).start()
            with suppress(requests.RequestException):  # no answer, or part of one
                while True:
                    name = f"relation {len(known)}"
                    body = {"relation": name, "examples": [f"[[a{len(known)}]] is {{{{b}}}} ."]}
                    requests.post(f"{url}/v1/teach", json=body, timeout=60).raise_for_status()
                    known.append(name)
        assert {*known} <= {one.id for one in Extractor.open(store).relations}
