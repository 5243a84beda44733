"""Routes about the server: health, readiness, metrics, and the files of the page."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from erda import __version__
from erda.errors import ModelError
from erda.serve.failures import FAILURES, FAILURES_IN_JSON, Refused, replies
from erda.serve.service import Service, TheService
from erda.serve.wire import OpenModel

router = APIRouter(tags=["server"], responses=FAILURES)
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
PAGE = Path(__file__).parent / "page"
mimetypes.add_type("text/javascript", ".js")  # some systems say text/plain, which no browser runs


@router.get("/health", responses=replies(OpenModel, "The process is alive."))
async def health() -> Response:
    """Whether the process is alive."""
    return JSONResponse({"status": "UP", "erda": __version__})


@router.get("/ready", responses=replies(OpenModel, "Questions are answered, and the store can be used."))
async def ready(service: TheService) -> Response:
    """Whether questions are answered at once and the store can be used; the failure says why not."""
    await service.read(lambda version: None)  # looks at the store
    if not service.is_warm or service.is_stopping():
        raise Refused(503, "not_ready", "The server is starting or stopping.")
    if service.trouble:
        raise ModelError(service.trouble)
    return JSONResponse({"status": "ready", "version": service.version.number})


# -- metrics -----------------------------------------------------------------------------------------------------------


class ServerMetrics:
    """Prometheus metrics: requests by route and status, their time, and the version."""

    def __init__(self, service: Service) -> None:
        self.registry = to = CollectorRegistry()
        self._requests = Counter("erda_requests", "Requests", ["route", "method", "status"], registry=to)
        self._seconds = Histogram("erda_request_seconds", "Time of requests", ["route"], buckets=SECONDS, registry=to)
        Gauge("erda_version", "Version that answers", registry=to).set_function(lambda: service.version.number)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request; unknown paths share one label, so that nobody can fill the memory with them."""
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, scope["method"] if route != "other" else "any", str(status)).inc()
        self._seconds.labels(route).observe(seconds)


@router.get("/metrics", response_class=Response, responses={**FAILURES_IN_JSON, 200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=PROMETHEUS)


# -- the page ----------------------------------------------------------------------------------------------------------


page_files = StaticFiles(directory=PAGE)


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page."""
    return await page_files.get_response("index.html", request.scope)
