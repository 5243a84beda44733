"""Jobs: progress, cancellation, and what a restart does with them."""

import json
from dataclasses import asdict
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pytest
from toy_server import Served, serving, toy_store, wait_for
from toy_words import Words

from erda.app.extractor import Extractor
from erda.encoders.contract import embedded_one
from erda.serve.jobs import Job, Jobs
from erda.serve.limits import Limits

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


@pytest.fixture
def slow(tmp_path: Path) -> SlowWords:
    encoder = SlowWords()
    toy_store(tmp_path / "store")
    return encoder


def opened(tmp_path: Path, encoder: Words) -> Extractor:
    return Extractor.open(tmp_path / "store", encoder=encoder)


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
    for _ in range(500):  # the file goes after the state is written
        if not (left := list(served.app.state.jobs.folder.glob("*.request.json"))):
            break
        sleep(0.01)
    assert not left, "a finished job keeps no sentences"
    assert served.call("GET", "/v1/jobs/0123456789abcdef/events").status_code == 404
    assert served.call("GET", "/v1/jobs/..%2f..%2fstore").status_code == 404


def test_a_cancelled_teaching_changes_nothing(tmp_path: Path, slow: SlowWords) -> None:
    with serving(opened(tmp_path, slow)) as served:
        served.get("/ready")
        slow.waits = True
        first = served.post("/v1/teach", {"examples": ROWS, "job": True}, 202)["id"]
        waiting = served.post("/v1/teach", {"examples": ROWS[:2], "job": True}, 202)["id"]
        assert slow.reached.wait(60)
        assert served.call("DELETE", f"/v1/jobs/{first}").json()["state"] == "running"
        served.call("DELETE", f"/v1/jobs/{waiting}")
        slow.go_on.set()
        assert [wait_for(served, id)["state"] for id in (first, waiting)] == ["cancelled", "cancelled"]
        assert served.get("/v1/relations")["version"] == 2


def test_a_stopped_server_finishes_its_job_after_the_restart(tmp_path: Path, slow: SlowWords) -> None:
    with serving(opened(tmp_path, slow)) as served:
        served.get("/ready")
        slow.waits = True
        job = served.post("/v1/teach", {"examples": ROWS, "job": True}, 202)["id"]
        assert slow.reached.wait(60)
        served.app.state.jobs._stopping = True
        slow.go_on.set()
    with serving(opened(tmp_path, Words())) as served:
        assert wait_for(served, job)["result"]["new"] == ["near"]


def test_a_job_that_ended_two_servers_fails_cleanly_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    def jobs() -> Jobs:
        return Jobs(tmp_path / "store", {"teach": lambda request, progress: {"n": len(request)}}, Limits())

    first = jobs()
    ran = first.add("teach", {"a": 1}, total=1)
    first._thread.submit(lambda: None).result(60)
    assert (first.get(ran.id).state, first.result(ran.id)) == ("done", {"n": 1})
    for id, worker in (("0" * 16, "f" * 16), ("1" * 16, first._token)):
        record = asdict(Job(id, "teach", "running", 0.0, n_runs=2, worker=worker))
        (first.folder / f"{id}.json").write_text(json.dumps(record))
    second = jobs()
    second.take_over()
    assert second.get("0" * 16).state == "failed"
    assert second.get("1" * 16).state == "running"
    second.stop()
    first.stop()
