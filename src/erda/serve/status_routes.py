"""Routes about the server: health, readiness, metrics, reference."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from erda import __version__
from erda.serve.failures import Json
from erda.serve.reference import STYLE, reference_page
from erda.serve.replies import Health
from erda.serve.routing import FAILURES, FAILURES_IN_JSON, TheService, replies

router = APIRouter(tags=["server"], responses={status: FAILURES[status] for status in (400, 421, 429, 503)})


@router.get("/health", responses=replies(Health, "The process is alive."))
async def health() -> Response:
    """Whether the process is alive."""
    return Json({"status": "UP", "erda": __version__})


@router.get("/ready", responses=replies(Health, "Questions are answered; 'trouble' says what is wrong with the store."))
async def ready(service: TheService) -> Response:
    """Whether questions are answered at once: the encoder is loaded and the server is not stopping."""
    await service.read(lambda version: None)  # looks at the store
    is_ready = service.is_warm and not service.is_stopping
    trouble = service.trouble.replace(str(service.folder), "the store")
    row = {"status": "ready" if is_ready else "busy", "version": service.version.number, "trouble": trouble}
    if not is_ready:
        row |= {"error": "not_ready", "message": "The server is starting or stopping.", "where": ""}
    return Json(row, 200 if is_ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **{status: FAILURES_IN_JSON[status] for status in (400, 401, 421, 429, 503)},
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
