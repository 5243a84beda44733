"""A real server on loopback, in a thread, over the extractor of a few words."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import requests
from toy_words import BORN, CAPITAL, FOUNDED, Words

from erda.app.extractor import Extractor
from erda.serve.application import bound_socket, build_application, web_server
from erda.serve.service import ServerSettings

QUESTION = "[[SpaceX]] was founded by {{Elon}} ."


@dataclass(frozen=True)
class Served:
    """The address of a running server and its parts."""

    url: str
    app: Any
    server: Any
    http: requests.Session = field(default_factory=requests.Session)

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> requests.Response:
        return self.http.request(method, self.url + path, json=body, timeout=60, **more)

    def get(self, path: str, **more: Any) -> Any:
        answer = self.call("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait_until_ready(self) -> None:
        while self.call("GET", "/ready").status_code == 503:  # it warms up in the background
            sleep(0.05)

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.call("POST", path, body)
        assert answer.status_code == status, answer.text
        return answer.json()


def wait_for(served: Served, id: str) -> Any:
    """The job, once it is finished; the events end then."""
    served.call("GET", f"/v1/jobs/{id}/events")
    return served.get(f"/v1/jobs/{id}")


def toy_store(folder: Path) -> Extractor:
    """Three relations in two teachings."""
    extractor = Extractor.open(folder, method="posterior", encoder=Words())
    extractor.teach("founded by", FOUNDED)
    extractor.teach_many({"born in": BORN, "capital of": CAPITAL})
    return extractor


@contextmanager
def serving(extractor: Extractor, *, token: str | None = None, write: Any = None, **limits: int) -> Iterator[Served]:
    settings = ServerSettings(extractor.folder, token=token, **limits)
    app = build_application(settings, extractor, write=write)
    listening = bound_socket("127.0.0.1", 0)
    server = web_server(app)
    thread = Thread(target=server.run, args=([listening],))
    thread.start()
    served = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", app, server)
    try:
        yield served
    finally:
        served.http.close()
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
