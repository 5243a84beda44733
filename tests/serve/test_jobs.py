"""Jobs: progress, cancellation, and the stop of the server."""

import json
from threading import Event
from typing import Any

import numpy as np
import requests
from toy_server import Served, serving, wait_for
from toy_words import Words

from erda.app.extractor import Extractor
from erda.encoders.contract import embedded_one

ROWS = [{"text": f"[[x{n}]] y {{{{z}}}}", "relation": "near"} for n in range(5)]


class SlowWords(Words):
    """Waits before its second sentence until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on, self.waits = Event(), Event(), False

    def embed(self, examples: Any, **more: Any) -> np.ndarray:
        for number, _ in enumerate(examples):
            if self.waits and number == 1:
                self.reached.set()
                assert self.go_on.wait(60)
            embedded_one()
        return super().embed(examples, **more)


def test_a_teaching_and_an_extraction_as_jobs(served: Served) -> None:
    job = served.post("/v1/teach", {"examples": ROWS, "job": True}, 202)
    done = wait_for(served, job["id"])
    assert (done["state"], done["done"], done["total"], done["result"]["version"]) == ("done", 5, 5, 3)
    documents = [{"id": "a", "text": "SpaceX was founded by Elon ."}, {"id": "b", "text": "a\u0000"}]
    job = served.post("/v1/extract", {"documents": documents, "keep": "all"}, 202)
    result = wait_for(served, job["id"])["result"]
    assert [one["id"] for one in result["documents"]] == ["a", "b"]
    assert result["documents"][0]["answers"][0]["head"] == "SpaceX"
    assert "control character" in result["documents"][1]["error"]
    assert [one["kind"] for one in served.get("/v1/jobs")["jobs"]] == ["teach", "extract"]
    failed = wait_for(served, served.post("/v1/teach", {"examples": ["no marks"], "job": True}, 202)["id"])
    assert (failed["state"], failed["failure"]["where"]) == ("failed", "examples[0]")
    assert served.call("GET", "/v1/jobs/0123456789abcdef/events").status_code == 404
    assert served.call("GET", "/v1/jobs/..%2f..%2fstore").status_code == 404


def test_a_cancelled_teaching_changes_nothing(extractor: Extractor) -> None:
    slow = SlowWords()
    with serving(Extractor.open(extractor.folder, encoder=slow)) as served:
        served.wait_until_ready()
        slow.waits = True
        first = served.post("/v1/teach", {"examples": ROWS, "job": True}, 202)["id"]
        waiting = served.post("/v1/teach", {"examples": ROWS[:2], "job": True}, 202)["id"]
        assert slow.reached.wait(60)
        assert served.call("DELETE", f"/v1/jobs/{first}").json()["state"] == "running"
        served.call("DELETE", f"/v1/jobs/{waiting}")
        slow.go_on.set()
        assert [wait_for(served, id)["state"] for id in (first, waiting)] == ["cancelled", "cancelled"]
        assert served.get("/v1/relations")["version"] == 2


def test_jobs_end_with_the_server_and_say_so(extractor: Extractor) -> None:
    slow = SlowWords()
    with serving(Extractor.open(extractor.folder, encoder=slow)) as served:
        served.wait_until_ready()
        slow.waits = True
        ids = [served.post("/v1/teach", {"examples": ROWS, "job": True}, 202)["id"] for _ in range(2)]
        assert slow.reached.wait(60)
        streams = [requests.get(f"{served.url}/v1/jobs/{id}/events", stream=True, timeout=60) for id in ids]
        served.server.should_exit = True
        slow.go_on.set()
        for stream in streams:
            last = json.loads(stream.text.strip().rpartition("data: ")[2])
            assert (last["state"], last["failure"]["error"]) == ("failed", "interrupted")
            assert "Post it again" in last["failure"]["message"]
    with serving(Extractor.open(extractor.folder, encoder=Words())) as served:
        assert served.get("/v1/relations")["version"] == 2
        gone = served.call("GET", f"/v1/jobs/{ids[0]}")
        assert (gone.status_code, gone.json()["error"]) == (404, "unknown_job")
        assert "end with the server" in gone.json()["message"]
