"""Routes about the server: health, readiness, metrics, the reference, and the files of the page."""

from __future__ import annotations

import json
import mimetypes
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.staticfiles import StaticFiles

from erda import __version__
from erda.serve.failures import FAILURES, FAILURES_IN_JSON, Json, replies
from erda.serve.guard import Scope
from erda.serve.service import Service, TheService
from erda.serve.wire import HealthReply

router = APIRouter(tags=["server"], responses=FAILURES)
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
PAGE = Path(__file__).parent / "page"
INTRODUCTION = """\
Every body is JSON. An answer names the version that gave it. Every error has the body {"error", "message", "where"}.
With a token, send the header "Authorization: Bearer TOKEN"."""
mimetypes.add_type("text/javascript", ".js")  # some systems say text/plain, which no browser runs


@router.get("/health", responses=replies(HealthReply, "The process is alive."))
async def health() -> Response:
    """Whether the process is alive."""
    return Json({"status": "UP", "erda": __version__})


@router.get(
    "/ready", responses=replies(HealthReply, "Questions are answered; 'trouble' says what is wrong with the store.")
)
async def ready(service: TheService) -> Response:
    """Whether questions are answered at once: the encoder is loaded and the server is not stopping."""
    await service.read(lambda version: None)  # looks at the store
    is_ready = service.is_warm and not service.is_stopping()
    trouble = service.trouble.replace(str(service.folder), "the store")
    row = {"status": "ready" if is_ready else "busy", "version": service.version.number, "trouble": trouble}
    if not is_ready:
        row |= {"error": "not_ready", "message": "The server is starting or stopping.", "where": ""}
    return Json(row, 200 if is_ready else 503)


# -- metrics -----------------------------------------------------------------------------------------------------------


class ServerMetrics:
    """Prometheus metrics: requests by route and status, their time, the queue and the version."""

    def __init__(self, service: Service) -> None:
        self._registry = to = CollectorRegistry()
        self._requests = Counter("erda_requests", "Requests", ["route", "method", "status"], registry=to)
        self._seconds = Histogram("erda_request_seconds", "Time of requests", ["route"], buckets=SECONDS, registry=to)
        for name, about, value in (
            ("erda_queued_questions", "Requests whose questions are in the queue", lambda: service.batcher.n_queued),
            ("erda_version", "Version that answers", lambda: service.version.number),
            ("erda_relations", "Known relations", lambda: len(service.version.relations)),
        ):
            Gauge(name, about, registry=to).set_function(value)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request; unknown paths share one label, so that nobody can fill the memory with them."""
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, scope["method"] if route != "other" else "any", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


@router.get(
    "/metrics",
    response_class=Response,
    responses={**FAILURES_IN_JSON, 200: {"content": {"text/plain": {}}}},
)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


# -- the page ----------------------------------------------------------------------------------------------------------


page_files = StaticFiles(directory=PAGE)


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page."""
    return await page_files.get_response("index.html", request.scope)


# -- the reference: one HTML page made from the OpenAPI document, without scripts --------------------------------------


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The reference of all calls."""
    return Response(reference_page(request.app.openapi()), media_type="text/html; charset=utf-8")


def reference_page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document: every call with its description and its examples."""
    parts = [f"<h1>erda</h1><p>{escape(INTRODUCTION)}</p>", '<p><a href="/openapi.json">OpenAPI document</a></p>']
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(call['description'])}</p>")
            parts += [
                f"<p>{escape(one['name'])}: {escape(one.get('description', ''))}</p>"
                for one in call.get("parameters", ())
            ]
            schema = call.get("requestBody", {"content": {}})["content"].get("application/json", {}).get("schema", {})
            body = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
            parts += [f"<pre>{escape(json.dumps(one, ensure_ascii=False))}</pre>" for one in body.get("examples", ())]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>erda: reference</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="/page/style.css"></head><body><main>{"".join(parts)}</main></body></html>'
    )
