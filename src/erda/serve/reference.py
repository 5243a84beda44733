"""The reference of all calls as one HTML page, made from the OpenAPI document: offline, without scripts."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = """\
html { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { font: 600 1.1rem ui-monospace, monospace; margin-top: 2.5rem }
pre { padding: .75rem; overflow-x: auto; background: color-mix(in srgb, currentColor 8%, transparent) }
"""
INTRODUCTION = """\
Every body is JSON. An answer names the version that gave it. Every error has the body {"error", "message", "where"}.
With a token, send the header "Authorization: Bearer TOKEN"."""


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
