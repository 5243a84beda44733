"""Start a server: check the address and the token, bind the socket, run one process or several."""

from __future__ import annotations

import os
import secrets
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from erda.errors import SettingsError, WriteError
from erda.files import cannot_write, read_bytes
from erda.serve.application import ServerSettings, build_application
from erda.serve.guard import is_loopback
from erda.serve.limits import Limits
from erda.serve.metrics import SHARED

SHORTEST_TOKEN = 16


def serve(
    settings: ServerSettings, *, n_workers: int = 1, started: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until interrupted. `started` receives the address to open, once connections are accepted."""
    refuse_open_address(settings)
    listening = bound_socket(settings.host, settings.port)
    started(page_address(settings, listening.getsockname()[1]))
    config = server_config(partial(build_application, settings), settings.limits, n_workers=n_workers)
    if n_workers == 1:
        uvicorn.Server(config).run([listening])
        return
    with TemporaryDirectory() as metrics:
        os.environ[SHARED] = metrics
        Multiprocess(config, [listening]).run()


def refuse_open_address(settings: ServerSettings) -> None:
    """Reject an address that other machines can reach without a token."""
    if settings.token is None and not is_loopback(settings.host):
        raise SettingsError(f"--host {settings.host}: other machines can reach this address; add --token-file FILE.")


def server_config(application: Callable[[], Any], limits: Limits, *, n_workers: int = 1) -> uvicorn.Config:
    """The configuration of uvicorn: no access log, no server header, timeouts for slow clients."""
    return uvicorn.Config(
        application,
        factory=True,
        http=TimedProtocol,
        ws="none",
        workers=n_workers,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=limits.stop_seconds,
    )


class TimedProtocol(HttpToolsProtocol):
    """HTTP with a time limit for the headers of a request, and a notice to the service when the server stops."""

    seconds = Limits().request_seconds
    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the clock with the connection."""
        super().connection_made(transport)
        self._restart()

    def on_message_begin(self) -> None:
        """Start the clock with each request."""
        super().on_message_begin()
        self._restart()

    def on_headers_complete(self) -> None:
        """Stop the clock; the guard limits the time of the body."""
        if self._timer:
            self._timer.cancel()
        super().on_headers_complete()

    def shutdown(self) -> None:
        """End streams of events, so that they do not hold up the stop."""
        if "service" in self.app_state:
            self.app_state["service"].is_stopping = True
        super().shutdown()

    def _restart(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.seconds, self.transport.close)


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; a port in use is a fault of one line."""
    if not 0 <= port <= 65_535:
        raise SettingsError(f"--port: expected 0 to 65535, got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)
    except (OSError, OverflowError, UnicodeError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise SettingsError(f"Cannot listen on {host}:{port} ({reason}). Choose another with --port.") from None
    found.set_inheritable(True)
    return found


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
