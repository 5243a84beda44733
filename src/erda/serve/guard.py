"""The guard in front of every route: Host, Origin, token, size and kind of the body, security headers, counts.

It runs before routing, so that no route can be forgotten. A page of another site can reach a server on loopback through
the user's browser: by a name that it points to 127.0.0.1 (rejected by the Host header), or by a request from its own
origin (rejected by the Origin header).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from fastapi.responses import RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from erda.serve.failures import Refused, refusal, stopping
from erda.serve.service import Service

Count = Callable[[Scope, int, float], None]  # receives the request, its status and its seconds

OPEN = ("/health", "/ready")  # answered without a token: they hold no data
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CONTENT_POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'"
HEADERS = {
    "content-security-policy": f"{CONTENT_POLICY}; form-action 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """ASGI middleware that rejects what no route should see."""

    def __init__(self, app: ASGIApp, *, service: Service, count: Count) -> None:
        self._app, self._service, self._count, self._n_active = app, service, count, 0
        settings = service.settings
        self._token = settings.token.encode() if settings.token is not None else None
        # The names of the server; one that listens on more than loopback also has every IP address.
        self._hosts = {one.lower().strip("[]") for one in (*LOOPBACK, settings.host, *settings.hosts)}
        self._any_address = not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject one request; other protocols than HTTP do not exist here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        start, status = perf_counter(), 0

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                headers.update(HEADERS)
                is_page = scope["path"] == "/" or scope["path"].startswith("/page/")  # has an ETag
                headers.setdefault("cache-control", "no-cache" if is_page else "no-store")
            await send(message)

        self._n_active += 1
        try:
            await self._answer(scope, receive, guarded)
        except CancelledError:  # the time for requests in progress is over
            if not self._service.is_stopping():
                raise
            if not status:
                await refusal(stopping())(scope, receive, guarded)
        finally:
            self._n_active -= 1
            self._count(scope, status or 500, perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HTTPConnection(scope)
        try:
            self._check_source(request)
            if self._token is not None and scope["path"] not in OPEN:
                if scope["path"] == "/" and self._is_token(request.query_params.get("token", "")):
                    # A browser opens the printed URL: send it to the page with a cookie, without the token.
                    answer = RedirectResponse("/", 303)
                    answer.set_cookie(*self._cookie, httponly=True, samesite="strict")
                    await answer(scope, receive, send)
                    return
                self._check_token(request)
            if self._service.is_stopping():
                raise stopping()
            if self._n_active > self._service.settings.n_active:
                raise Refused(503, "queue_full", f"{self._n_active:,} requests are in progress. Ask again in a moment.")
            body = await self._body(request, receive)
        except Refused as fault:
            await refusal(fault)(scope, receive, send)
        else:
            await self._app(scope, replay_body(body, receive), send)

    def _check_source(self, request: HTTPConnection) -> None:
        headers = request.headers
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host_name(host)
        if name not in self._hosts and not (self._any_address and is_address(name)):
            raise Refused(421, "wrong_host", f"This server is not called '{name[:80]}'. See --allow-host.", "Host")
        if origin is not None and origin.casefold() not in (f"http://{host}".casefold(), f"https://{host}".casefold()):
            raise Refused(403, "foreign_origin", "Pages of another origin cannot use this server.", "Origin")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.scope["path"].startswith("/v1/"):
            raise Refused(403, "foreign_origin", "Pages of another site cannot use this server.", "Sec-Fetch-Site")

    # -- the token -----------------------------------------------------------------------------------------------------

    def _check_token(self, request: HTTPConnection) -> None:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.casefold() == "basic":  # as Label Studio sends it: any user, the token as password
            with suppress(binascii.Error, UnicodeDecodeError):
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
        name, expected = self._cookie
        is_known = hmac.compare_digest(request.cookies.get(name, "").encode("utf-8", "replace"), expected.encode())
        if not is_known and not (value and self._is_token(value.strip())):
            how = "Send 'Authorization: Bearer TOKEN', or open the address that erda serve printed."
            raise Refused(401, "no_token", f"The token is missing or wrong. {how}", "Authorization")

    def _is_token(self, sent: str) -> bool:
        return self._token is not None and hmac.compare_digest(sent.encode("utf-8", "replace"), self._token)

    @property
    def _cookie(self) -> tuple[str, str]:
        """Name and value, both derived from the token: servers on two ports of a host share their cookies."""
        digest = hmac.new(self._token or b"", b"cookie", hashlib.sha256).hexdigest()
        return f"erda-{digest[:8]}", digest[8:]

    # -- the body ------------------------------------------------------------------------------------------------------

    async def _body(self, request: HTTPConnection, receive: Receive) -> bytes:
        """Read the whole body, which is small; only JSON is accepted."""
        headers, most = request.headers, self._service.settings.body_size
        length = headers.get("content-length", "0")
        has_body = length != "0" or "transfer-encoding" in headers
        is_json = headers.get("content-type", "").partition(";")[0].strip().casefold() == "application/json"
        method = request.scope["method"]  # others, such as PUT, have no route
        if (method == "POST" or (has_body and method in ("GET", "HEAD", "OPTIONS", "DELETE"))) and not is_json:
            how = "send 'Content-Type: application/json'."
            raise Refused(415, "not_json", f"The body must be JSON: {how}", "Content-Type")
        too_large = Refused(413, "too_large", f"The body is larger than {most:,} bytes. Send less at once.", "body")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        body = bytearray()
        while has_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "disconnected", "The connection ended before the body.", "body")
            body += message.get("body", b"")
            if len(body) > most:
                raise too_large
            has_body = message.get("more_body", False)
        return bytes(body)


def host_name(host: str) -> str:
    """The name in a Host header, without its port: `[::1]:8000` is `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def is_address(name: str) -> bool:
    """Whether a host name is an IP address, which nobody can point elsewhere."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def is_loopback(host: str) -> bool:
    """Whether a server on this address is out of reach for other machines."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body already read, then the messages that follow."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
