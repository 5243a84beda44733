"""The files of the page: read into a fixed table when the server starts, so that no request ever names a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

from erda.serve.failures import Refused

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file in memory."""

    content: bytes
    kind: str
    tag: str


def page_table(folder: Path = FOLDER) -> dict[str, PageFile]:
    """All files of the page by their relative names."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())
    contents = {path: path.read_bytes() for path in found}
    return {
        path.relative_to(folder).as_posix(): PageFile(
            content, KINDS[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        )
        for path, content in contents.items()
    }


def page_routes() -> APIRouter:
    """Routes of the page: `/` and `/page/NAME`."""
    table, router = page_table(), APIRouter(include_in_schema=False)

    def served(name: str, request: Request) -> Response:
        if name not in table:
            raise Refused(404, "unknown_path", "There is no such file.", "path")
        one = table[name]
        headers = {"etag": one.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == one.tag:
            return Response(status_code=304, headers=headers)
        return Response(one.content, headers={**headers, "content-type": one.kind})

    @router.get("/")
    async def page(request: Request) -> Response:
        """The page."""
        return served("index.html", request)

    @router.get("/page/{name:path}")
    async def page_file(name: str, request: Request) -> Response:
        """A file of the page."""
        return served(name, request)

    return router
