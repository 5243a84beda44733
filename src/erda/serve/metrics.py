"""Prometheus metrics of a server."""

from __future__ import annotations

from collections.abc import MutableMapping
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from erda.serve.guard import App, Receive, Scope, Send
from erda.serve.service import Service

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """Requests by route and status, their time, the queue and the version."""

    def __init__(self, service: Service) -> None:
        self._service, self._registry = service, CollectorRegistry()
        to = self._registry
        self._requests = Counter("erda_requests", "Requests", ["route", "method", "status"], registry=to)
        self._seconds = Histogram("erda_request_seconds", "Time of requests", ["route"], buckets=SECONDS, registry=to)
        self._queued = Gauge("erda_queued_questions", "Questions in the queue", registry=to)
        self._version = Gauge("erda_version", "Version that answers", registry=to)
        self._relations = Gauge("erda_relations", "Known relations", registry=to)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request; unknown paths share one label, so that nobody can fill the memory with them."""
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, scope["method"] if route != "other" else "any", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        self._queued.set(self._service.batcher.n_queued)
        self._version.set(self._service.version.number)
        self._relations.set(len(self._service.version.relations))
        return generate_latest(self._registry)


class Measured:
    """ASGI middleware that counts requests."""

    def __init__(self, app: App, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = perf_counter(), 500

        async def counted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            self._metrics.count(scope, status, perf_counter() - start)
