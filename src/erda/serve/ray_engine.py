"""The application as a Ray Serve deployment: replicas that answer, and one writer.

Every replica answers from its own copy of the newest version, and only reads the store, which all nodes must see under
the same path. Requests that change something are handed on to the writer, a deployment of one replica. A replica
notices a new version by the file that names it, at its next answer.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from threading import Event

from fastapi import FastAPI, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from erda.cluster import connected
from erda.errors import SettingsError, require
from erda.serve.application import bound_socket, build_application, page_address, reject_open_address
from erda.serve.guard import replay_body
from erda.serve.service import ServerSettings

NAME, WRITER = "erda", "Writer"
# What a replica answers itself, besides GET.
QUESTIONS = (
    *(f"/v1/{name}" for name in ("predict", "extract", "graph", "explain", "evaluate", "entities")),
    *("/predict", "/setup"),
)
WRITERS = ("/v1/review", "/v1/jobs")  # also their GET: the writer has the review and the jobs


class ToWriter:
    """ASGI middleware of a replica that hands changes on; it runs behind the guard."""

    def __init__(self, app: ASGIApp, *, write: Callable[[Scope, bytes], Awaitable[Response]]) -> None:
        self._app, self._write = app, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request here or by the writer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]  # whole: the guard has read it
        is_job = scope["path"] == "/v1/extract" and b'"documents"' in body
        if not is_job and not is_change(scope["method"], scope["path"]):
            await self._app(scope, replay_body(body, receive), send)
            return
        kept = ("type", "method", "path", "raw_path", "query_string", "headers", "http_version", "scheme", "client")
        answer = await self._write({name: scope[name] for name in kept if name in scope}, body)
        await answer(scope, receive, send)


def is_change(method: str, path: str) -> bool:
    """Whether the writer answers a request."""
    return path.startswith(WRITERS) or (method not in ("GET", "HEAD", "OPTIONS") and path not in QUESTIONS)


class Writer:
    """The deployment that changes the store: the whole application, called without HTTP."""

    def __init__(self, settings: ServerSettings) -> None:
        self._app = build_application(settings)
        self._app.state.desk.save_soon()  # what an earlier writer has left

    async def __call__(self, scope: Scope, body: bytes) -> Response:
        """Answer a request."""
        return await answer_of(self._app, scope, body)


async def answer_of(app: FastAPI, scope: Scope, body: bytes) -> Response:
    """The answer of an application to a request."""
    status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

    async def no_disconnect() -> Message:
        await asyncio.Event().wait()  # the replica waits for the whole answer
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
        else:
            parts.append(message.get("body", b""))

    await app(
        {"asgi": {"version": "3.0"}, "root_path": "", "server": None, **scope}, replay_body(body, no_disconnect), send
    )
    answer = Response(b"".join(parts), status)
    answer.raw_headers = headers
    return answer


def build_replica(settings: ServerSettings) -> FastAPI:
    """The application of a replica."""
    from ray import serve

    writer = serve.get_deployment_handle(WRITER, app_name=NAME)

    async def write(scope: Scope, body: bytes) -> Response:
        reply: Response = await writer.remote(scope, body)
        return reply

    return build_application(settings, write=partial(ToWriter, write=write))


def serve_on_ray(settings: ServerSettings, *, address: str | None, started: Callable[[str], None]) -> None:
    """Serve on a Ray cluster until interrupted; a local cluster is started for None. Ray scales the replicas."""
    reject_open_address(settings)
    require("ray")
    from ray import serve

    with bound_socket(settings.host, settings.port) as free:  # Ray's proxy binds it again
        settings = replace(settings, port=free.getsockname()[1], store=settings.store.absolute())
    with connected(address):
        try:
            serve.start(proxy_location="HeadOnly", http_options={"host": settings.host, "port": settings.port})
            most = {"max_ongoing_requests": settings.n_active}
            writer = serve.deployment(Writer, name=WRITER, ray_actor_options={"num_cpus": 0}, **most)
            replicas = serve.deployment(
                serve.ingress(lambda: build_replica(settings))(),
                name="Replica",
                num_replicas="auto",
                ray_actor_options={"num_cpus": 1},
                **most,
            )
            serve.run(replicas.bind(writer.bind(settings)), name=NAME, route_prefix="/")
        except (RuntimeError, TimeoutError) as fault:
            raise SettingsError(f"Ray Serve did not start ({str(fault).splitlines()[0][:200]}).") from None
        started(page_address(settings, settings.port))
        stopped = Event()
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, lambda *_: stopped.set())
        try:
            stopped.wait()
        finally:
            serve.shutdown()
