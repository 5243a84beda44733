"""What every route shares: the service, the reference of its errors, and answers as JSON."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel

from erda.serve.failures import Failure
from erda.serve.jobs import Jobs
from erda.serve.service import Service

FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": about}
    for status, about in {
        400: "The request is not readable.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another origin.",
        409: "Nothing was taught yet, or the pair was judged before.",
        413: "The body is too large.",
        415: "The body is not JSON.",
        421: "The Host header does not name this server.",
        422: "The request is invalid.",
        500: "The server failed.",
        501: "An extra is not installed.",
        503: "Busy, or the store cannot be used.",
    }.items()
}

_FAILURE = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
# For routes whose success is not JSON: FastAPI would document their failures with the media type of the success.
FAILURES_IN_JSON: dict[int | str, dict[str, Any]] = {
    status: {"description": one["description"], "content": _FAILURE} for status, one in FAILURES.items()
}


async def service_of(request: Request) -> Service:
    """The extractor behind the server."""
    found: Service = request.app.state.service
    return found


async def jobs_of(request: Request) -> Jobs:
    """The jobs of the server."""
    found: Jobs = request.app.state.jobs
    return found


TheService = Annotated[Service, Depends(service_of)]
TheJobs = Annotated[Jobs, Depends(jobs_of)]


def replies(model: type[BaseModel], about: str, *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The documented success of a route; the answer itself is written without a second validation."""
    return {status: {"model": model, "description": about}}
