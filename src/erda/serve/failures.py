"""The one error body of the server, and the status of each kind of fault."""

from __future__ import annotations

import logging
import re
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from erda.app.version import NOTHING_TAUGHT
from erda.errors import EXTRAS, BusyError, ErdaError, ModelError, WriteError, join_faults, not_installed, printable
from erda.fields import fault_text
from erda.serve.wire import Failure

_FIELDS = {"unrelated sentence": "unrelated"}  # other items of lists are fields in the singular
_ITEM = re.compile(r"(?:^|: )((?:counter)?example|question|text|unrelated sentence) (\d+): ")
_NAMES = {400: "unreadable", 404: "unknown_path", 405: "wrong_method"}
_UNAVAILABLE: dict[type[ErdaError], str] = {
    BusyError: "busy",
    WriteError: "cannot_write",
    ModelError: "store_unavailable",
}
log = logging.getLogger("erda.serve")

Documented = dict[int | str, dict[str, Any]]  # of FastAPI's `responses`
FAILURES: Documented = {"default": {"model": Failure, "description": "A failure (docs/server.md lists the statuses)."}}
# For routes whose success is not JSON: FastAPI would document their failures with the media type of the success.
_FAILURE = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
FAILURES_IN_JSON: Documented = {"default": {"description": "A failure.", "content": _FAILURE}}


def replies(model: Any, about: str, *, status: int = 200) -> Documented:
    """Document the success of a route; the answer itself is written without a second validation."""
    return {status: {"model": model, "description": about}}


class Refused(Exception):  # noqa: N818 (an answer, not a fault of ours)
    """A request that is rejected, with its status."""

    def __init__(self, status: int, error: str, message: str, where: str = "") -> None:
        super().__init__(message)
        self.status, self.failure = status, Failure(error=error, message=message, where=where)


def stopping() -> Refused:
    """The rejection of a request by a server that stops."""
    return Refused(503, "stopping", "The server is stopping. Send the request again later.")


def refusal(fault: Refused) -> JSONResponse:
    """The answer to a rejected request."""
    headers = {"retry-after": "1"} if fault.status == 503 else {}
    if fault.status == 401:
        headers["www-authenticate"] = 'Bearer realm="erda"'
    return JSONResponse(fault.failure.model_dump(), fault.status, headers)


def refused(fault: Exception, folder: Path) -> Refused:
    """Translate a fault of the library; the path of the store is not shown to clients."""
    if isinstance(fault, Refused):
        return fault
    message = printable(str(fault)).replace(str(folder), "the store")
    found = _ITEM.search(message)
    where = f"{_FIELDS.get(found[1], f'{found[1]}s')}[{int(found[2]) - 1}]" if found else ""
    if message == NOTHING_TAUGHT:
        return Refused(409, "nothing_taught", message)
    for kind, error in _UNAVAILABLE.items():
        if isinstance(fault, kind):
            return Refused(503, error, message)
    if isinstance(fault, ErdaError):
        return Refused(422, "invalid", message, where)
    if isinstance(fault, ModuleNotFoundError) and fault.name in EXTRAS:
        return Refused(501, "not_installed", not_installed([fault.name]))
    log.exception("A request failed.", exc_info=fault)
    return Refused(500, "internal", "The server failed; its log says why.")


def add_failures(app: FastAPI, folder: Path) -> None:
    """Answer every fault with the one error body."""

    async def of_library(request: Request, fault: Exception) -> JSONResponse:
        return refusal(refused(fault, folder))

    async def of_body(request: Request, fault: Exception) -> JSONResponse:
        assert isinstance(fault, RequestValidationError)
        first = fault.errors()[0]
        if first["type"] == "json_invalid":
            place = JSONDecodeError(first["ctx"]["error"], fault.body, first["loc"][-1])  # line and column
            return refusal(Refused(400, "unreadable", f"The body is not valid JSON: {place}.", "body"))
        if first["type"] == "missing" and first["loc"] == ("body",):
            return refusal(Refused(400, "unreadable", "The body is missing: send a JSON object.", "body"))
        said = [(_place(one["loc"]) or "body", fault_text(one)) for one in fault.errors()]
        message = join_faults([f"{place}: {text}" for place, text in said])
        return refusal(Refused(422, "invalid", printable(message), said[0][0]))

    async def of_path(request: Request, fault: Exception) -> JSONResponse:
        assert isinstance(fault, HTTPException)
        where = "body" if fault.status_code == 400 else request.url.path
        answer = refusal(Refused(fault.status_code, _NAMES[fault.status_code], f"{fault.detail}.", where))
        answer.headers.update(fault.headers or {})
        return answer

    app.add_exception_handler(RequestValidationError, of_body)
    for status in _NAMES:
        app.add_exception_handler(status, of_path)
    for kind in (Refused, ErdaError, Exception):
        app.add_exception_handler(kind, of_library)


def _place(steps: tuple[int | str, ...]) -> str:
    """The field at fault, as `examples[2].text`; the kinds that a union tried are left out."""
    kinds = ("body", "path", "query", "str", "constrained-str", "ExampleBody", "EntityBody")
    named = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps if one not in kinds)
    return "".join(named).removeprefix(".")
