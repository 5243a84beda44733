"""The ASGI application: routes behind the guard, over one extractor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp

from erda import __version__
from erda.app.extractor import Extractor
from erda.serve import jobs, label_studio, review_routes, routes, status_routes
from erda.serve.failures import add_failures
from erda.serve.guard import LOOPBACK, Guard, is_loopback
from erda.serve.service import ServerLimits, Service


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The store to serve, the address, and who may ask."""

    store: Path
    host: str = "127.0.0.1"
    port: int = 8111
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()  # further names of the server
    limits: ServerLimits = field(default_factory=ServerLimits)


def build_application(
    settings: ServerSettings, extractor: Extractor | None = None, *, write: Callable[[ASGIApp], ASGIApp] | None = None
) -> FastAPI:
    """Build the application. The extractor is opened now; its encoder loads in the background.

    `write` is middleware that hands changes on, for a replica that only reads the store.
    """
    service = Service(extractor or Extractor.open(settings.store), settings.limits)
    desk = review_routes.ReviewDesk(service)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        if write is None:
            desk.save_soon()
        yield
        app.state.jobs.stop()
        desk.stop(saves=write is None)
        service.stop()

    app = FastAPI(
        title="erda", version=__version__, docs_url=None, redoc_url=None, lifespan=running, redirect_slashes=False
    )
    app.state.service, app.state.desk = service, desk
    app.state.jobs, app.state.metrics = jobs.Jobs(service), status_routes.ServerMetrics(service)
    for module in (routes, jobs, review_routes, status_routes, label_studio):
        app.include_router(module.router)
    app.mount("/page", status_routes.page_files)
    add_failures(app, service.folder)
    if write is not None:
        app.add_middleware(write)
    app.add_middleware(
        Guard,
        service=service,
        hosts=frozenset(one.lower().strip("[]") for one in (*LOOPBACK, settings.host, *settings.hosts)),
        any_address=not is_loopback(settings.host),
        token=settings.token,
        count=app.state.metrics.count,
    )
    return app
