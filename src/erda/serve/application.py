"""The ASGI application: routes behind the guard, over one extractor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI

from erda import __version__
from erda.app.extractor import Extractor
from erda.serve import changes, job_routes, label_studio, questions, review_routes, status_routes, view_routes
from erda.serve.failures import add_failures
from erda.serve.guard import LOOPBACK, App, Guard, is_loopback
from erda.serve.jobs import Jobs
from erda.serve.limits import Limits
from erda.serve.metrics import Measured, Metrics
from erda.serve.page_files import page_routes
from erda.serve.review_routes import ReviewDesk
from erda.serve.service import Service
from erda.serve.work import job_work


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The store to serve, the address, and who may ask."""

    store: Path
    host: str = "127.0.0.1"
    port: int = 8111
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()  # further names of the server
    limits: Limits = field(default_factory=Limits)


def build_application(
    settings: ServerSettings, extractor: Extractor | None = None, *, write: Callable[[App], App] | None = None
) -> FastAPI:
    """Build the application. The extractor is opened now; its encoder loads in the background.

    `write` is middleware that hands changes on, for a replica that only reads the store.
    """
    service = Service(extractor or Extractor.open(settings.store), settings.limits)
    desk = ReviewDesk(service)
    jobs = Jobs(service.folder, job_work(service, desk.shared), settings.limits)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[dict[str, Service]]:
        if write is None:
            jobs.take_over()
            desk.save_soon()
        yield {"service": service}
        jobs.stop()
        desk.stop(saves=write is None)
        service.stop()

    app = FastAPI(
        title="erda", version=__version__, docs_url=None, redoc_url=None, lifespan=running, redirect_slashes=False
    )
    app.state.service, app.state.jobs, app.state.metrics = service, jobs, Metrics(service)
    app.state.desk = desk
    for router in (
        questions.router,
        changes.router,
        job_routes.router,
        view_routes.router,
        review_routes.router,
        status_routes.router,
        label_studio.router,
        page_routes(),
    ):
        app.include_router(router)
    add_failures(app, service.folder)
    if write is not None:
        app.add_middleware(write)
    app.add_middleware(
        Guard,
        limits=settings.limits,
        hosts=frozenset(one.lower().strip("[]") for one in (*LOOPBACK, settings.host, *settings.hosts)),
        any_address=not is_loopback(settings.host),
        token=settings.token,
    )
    app.add_middleware(Measured, metrics=app.state.metrics)
    return app
