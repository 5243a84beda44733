"""The server: the ASGI application, routes behind the guard over one extractor; its address, token and start."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from erda import __version__
from erda.app.extractor import Extractor
from erda.errors import SettingsError, WriteError
from erda.files import cannot_write, read_bytes
from erda.serve import jobs, label_studio, review_routes, routes, status_routes
from erda.serve.failures import add_failures
from erda.serve.guard import Guard, is_loopback
from erda.serve.service import ServerSettings, Service

SHORTEST_TOKEN = 16
STOP_SECONDS = 10  # for requests in progress when the server stops


def build_application(
    settings: ServerSettings, extractor: Extractor | None = None, *, write: Callable[[ASGIApp], ASGIApp] | None = None
) -> FastAPI:
    """Build the application. The extractor is opened now; its encoder loads in the background.

    `write` is middleware that hands changes on, for a replica that only reads the store.
    """
    service = Service(extractor or Extractor.open(settings.store), settings)
    desk = review_routes.ReviewDesk(service)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        if write is None:
            desk.save_soon()
        yield
        service.is_stopping = lambda: True
        app.state.jobs.stop()
        if write is None:
            desk.stop()
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
    app.add_middleware(Guard, service=service, count=app.state.metrics.count)
    return app


# -- start -------------------------------------------------------------------------------------------------------------


def serve(settings: ServerSettings, *, started: Callable[[str], None]) -> None:
    """Serve until interrupted. `started` receives the address to open, once connections are accepted."""
    reject_open_address(settings)
    listening = bound_socket(settings.host, settings.port)
    started(page_address(settings, listening.getsockname()[1]))
    web_server(build_application(settings)).run([listening])


def reject_open_address(settings: ServerSettings) -> None:
    """Reject an address that other machines can reach without a token."""
    if settings.token is None and not is_loopback(settings.host):
        raise SettingsError(f"--host {settings.host}: other machines can reach this address; add --token-file FILE.")


def web_server(app: FastAPI) -> uvicorn.Server:
    """Configure uvicorn: no access log, no server header, and a notice to the service when the server stops."""
    config = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = uvicorn.Server(config)
    app.state.service.is_stopping = lambda: server.should_exit
    return server


def bound_socket(host: str, port: int) -> socket.socket:
    """Open a listening socket; a port in use raises `SettingsError`."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError, UnicodeError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise SettingsError(f"Cannot listen on {host}:{port} ({reason}). Choose another with --port.") from None


def page_address(settings: ServerSettings, port: int) -> str:
    """The address to open in a browser; it carries the token, as Jupyter's does."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}/" + (f"?token={settings.token}" if settings.token else "")


def read_token(path: Path) -> str:
    """Read the token of a file; a missing file is created with a random token that only its owner can read."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(secrets.token_urlsafe(32) + "\n")
    except FileExistsError:
        pass
    except OSError as fault:
        raise WriteError(cannot_write(path, fault)) from None
    token = read_bytes(path, error=SettingsError).decode("ascii", "replace").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"{path}: a token has at least {SHORTEST_TOKEN} letters and digits, and no space.")
    return token
