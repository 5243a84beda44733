"""Routes about the server: health, readiness, metrics, reference."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

from erda import __version__
from erda.serve.failures import Json
from erda.serve.replies import Health
from erda.serve.routing import FAILURES, FAILURES_IN_JSON, TheService, replies

router = APIRouter(tags=["server"], responses={status: FAILURES[status] for status in (400, 421, 503)})
STYLE = """\
html { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { font: 600 1.1rem ui-monospace, monospace; margin-top: 2.5rem }
pre { padding: .75rem; overflow-x: auto; background: color-mix(in srgb, currentColor 8%, transparent) }
"""
INTRODUCTION = """\
Every body is JSON. An answer names the version that gave it. Every error has the body {"error", "message", "where"}.
With a token, send the header "Authorization: Bearer TOKEN"."""


@router.get("/health", responses=replies(Health, "The process is alive."))
async def health() -> Response:
    """Whether the process is alive."""
    return Json({"status": "UP", "erda": __version__})


@router.get("/ready", responses=replies(Health, "Questions are answered; 'trouble' says what is wrong with the store."))
async def ready(service: TheService) -> Response:
    """Whether questions are answered at once: the encoder is loaded and the server is not stopping."""
    await service.read(lambda version: None)  # looks at the store
    is_ready = service.is_warm and not service.is_stopping()
    trouble = service.trouble.replace(str(service.folder), "the store")
    row = {"status": "ready" if is_ready else "busy", "version": service.version.number, "trouble": trouble}
    if not is_ready:
        row |= {"error": "not_ready", "message": "The server is starting or stopping.", "where": ""}
    return Json(row, 200 if is_ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **{status: FAILURES_IN_JSON[status] for status in (400, 401, 421, 503)},
        200: {"content": {"text/plain": {}}},
    },
)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The reference of all calls."""
    return Response(reference_page(request.app.openapi()), media_type="text/html; charset=utf-8")


@router.get("/docs.css", include_in_schema=False)
async def docs_style() -> Response:
    """The style of the reference."""
    return Response(STYLE, media_type="text/css; charset=utf-8")


# -- the reference: one HTML page made from the OpenAPI document, without scripts --------------------------------------


def reference_page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    calls = [
        _call(document, path, method, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>erda: reference</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="/docs.css"></head><body><main><h1>{escape(document["info"]["title"])}</h1>'
        f'<p>{escape(INTRODUCTION)}</p><p><a href="/openapi.json">OpenAPI document</a></p>'
        f"{''.join(calls)}</main></body></html>"
    )


def _call(document: dict[str, Any], path: str, method: str, call: dict[str, Any]) -> str:
    examples = _examples(document, call)
    query = "".join(
        f"<li><code>{escape(one['name'])}</code> ({escape(one['in'])}) {escape(one.get('description', ''))}</li>"
        for one in call.get("parameters", ())
    )
    answers = "".join(
        f"<li>{escape(status)}: {escape(one['description'])}</li>"
        for status, one in call["responses"].items()
        if status.startswith("2")
    )
    shown = "".join(f"<pre>{escape(_curl(method, path, one))}</pre>" for one in examples or [None])
    return (
        f"<section><h2>{method.upper()} {escape(path)}</h2><p>{escape(call.get('description', ''))}</p>"
        f"<ul>{query}</ul>{shown}<ul>{answers}</ul></section>"
    )


def _examples(document: dict[str, Any], call: dict[str, Any]) -> list[Any]:
    """The examples of the body of a call."""
    content = call.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    found: list[Any] = document["components"]["schemas"].get(name, {}).get("examples", [])
    return found


def _curl(method: str, path: str, body: Any) -> str:
    command = f"curl -X {method.upper()} http://127.0.0.1:8111{path}"
    if body is None:
        return command
    return f"{command} -H 'Content-Type: application/json' -d '{json.dumps(body, ensure_ascii=False)}'"
