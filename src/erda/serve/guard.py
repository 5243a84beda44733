"""The guard in front of every route: Host, Origin, token, size and kind of the body, security headers.

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
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from fastapi.responses import HTMLResponse

from erda.serve.failures import Refused, refusal
from erda.serve.service import ServerLimits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/health", "/ready")  # answered without a token: they hold no data
SAFE = ("GET", "HEAD", "OPTIONS")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NO_TOKEN_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>erda: token needed</title><link rel="icon" href="data:,"><h1>This page needs a token</h1>
<p>Open the address that <code>erda serve</code> printed when it started: it carries the token.</p>
<p>The token is also in the file that was given as <code>--token-file</code>.</p></html>"""
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """ASGI middleware that rejects what no route should see.

    `hosts` are the names by which the server is addressed; `any_address` also accepts every IP address, for a server
    that listens on more than loopback.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: ServerLimits,
        hosts: frozenset[str],
        any_address: bool = False,
        token: str | None = None,
    ) -> None:
        self._app, self._limits, self._hosts, self._any_address = app, limits, hosts, any_address
        self._token = token.encode() if token is not None else None
        self._n_active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject one request; other protocols than HTTP do not exist here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, with_headers(send))
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._n_active += 1
        try:
            headers = single_headers(scope)
            self._check_source(scope, headers)
            if self._token is not None and scope["path"] not in OPEN:
                if cookie := self._new_cookie(scope):
                    await _redirect(cookie, send)
                    return
                self._check_token(headers)
            if self._n_active > self._limits.n_active:
                raise Refused(503, "queue_full", f"{self._n_active:,} requests are in progress. Ask again in a moment.")
            body = await self._body(scope, headers, receive)
        except Refused as fault:
            is_browser = (
                fault.status == 401
                and scope["path"] == "/"
                and b"text/html" in dict(scope["headers"]).get(b"accept", b"")
            )
            answer = HTMLResponse(NO_TOKEN_PAGE, 401) if is_browser else refusal(fault)
            await answer(scope, receive, send)
        else:
            await self._app(scope, replay_body(body, receive), send)
        finally:
            self._n_active -= 1

    def _check_source(self, scope: Scope, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        name = host_name(host)
        if name not in self._hosts and not (self._any_address and is_address(name)):
            raise Refused(421, "wrong_host", f"This server is not called '{name[:80]}'. See --allow-host.", "Host")
        origin = headers.get("origin")
        if origin is not None and origin.casefold() not in (f"http://{host}".casefold(), f"https://{host}".casefold()):
            raise Refused(403, "foreign_origin", "Pages of another origin cannot use this server.", "Origin")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["path"].startswith("/v1/"):
            raise Refused(403, "foreign_origin", "Pages of another site cannot use this server.", "Sec-Fetch-Site")

    # -- the token -----------------------------------------------------------------------------------------------------

    def _new_cookie(self, scope: Scope) -> str | None:
        """The cookie for a browser that opens the printed URL, `/?token=...`."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token") if scope["path"] == "/" else None
        return self._cookie if given and self._is_token(given[0]) else None

    def _check_token(self, headers: Mapping[str, str]) -> None:
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "basic":  # as Label Studio sends it: any user, the token as password
            with suppress(binascii.Error, UnicodeDecodeError):
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
        if value and self._is_token(value.strip()):
            return
        with suppress(CookieError):
            name, _, expected = self._cookie.partition("=")
            found = SimpleCookie(headers.get("cookie", "")).get(name)
            if found and hmac.compare_digest(found.value.encode(), expected.encode()):
                return
        how = "Send 'Authorization: Bearer TOKEN', or open the address that erda serve printed."
        raise Refused(401, "no_token", f"The token is missing or wrong. {how}", "Authorization")

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    @property
    def _cookie(self) -> str:
        """`NAME=VALUE`, both derived from the token: servers on two ports of a host share their cookies."""
        digest = hmac.new(self._token or b"", b"cookie", hashlib.sha256).hexdigest()
        return f"erda-{digest[:8]}={digest[8:]}"

    # -- the body ------------------------------------------------------------------------------------------------------

    async def _body(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> bytes:
        """Read the whole body, which is small; only JSON is accepted."""
        length, most = headers.get("content-length", "0"), self._limits.body_size
        has_body = length != "0" or "transfer-encoding" in headers
        is_json = headers.get("content-type", "").partition(";")[0].strip().casefold() == "application/json"
        if (scope["method"] not in (*SAFE, "DELETE") or has_body) and not is_json:
            how = "send 'Content-Type: application/json'."
            raise Refused(415, "not_json", f"The body must be JSON: {how}", "Content-Type")
        too_large = Refused(413, "too_large", f"The body is larger than {most:,} bytes. Send less at once.", "body")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        parts, size = list[bytes](), 0
        while has_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "disconnected", "The connection ended before the body.", "body")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large
            has_body = message.get("more_body", False)
        return b"".join(parts)


def single_headers(scope: Scope) -> dict[str, str]:
    """The headers by their names in small letters; headers that decide about access must not come twice."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in found and key in ("host", "origin", "authorization", "content-type", "content-length"):
            raise Refused(400, "unreadable", f"The header {key} occurs twice.", key)
        found[key] = value.decode("latin-1").strip()
    return found


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
    """A `receive` that gives a body already read, then the messages that follow."""
    given = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def with_headers(send: Send) -> Send:
    """A `send` that adds the security headers."""

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            more = HEADERS if b"cache-control" in names else (*HEADERS, (b"cache-control", b"no-store"))
            message["headers"] = [*message.get("headers", ()), *more]
        await send(message)

    return guarded


async def _redirect(cookie: str, send: Send) -> None:
    """Send the browser to the page without the token in its address."""
    value = f"{cookie}; HttpOnly; SameSite=Strict; Path=/"
    headers = [(b"location", b"/"), (b"set-cookie", value.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
