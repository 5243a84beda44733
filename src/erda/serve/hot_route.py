"""A fast path for the most frequent request: `POST /v1/predict` with one marked sentence.

FastAPI and pydantic take longer for such a request than half an inference. Everything else, and every body that is not
exactly of this form, takes the regular route, which also reports all faults.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated

import msgspec
from msgspec import Meta

from erda.app.inputs import MOST_CHARACTERS, example_of
from erda.app.version import TOP
from erda.errors import DataError
from erda.serve.failures import refusal, refused
from erda.serve.guard import App, Receive, Scope, Send, replayed
from erda.serve.replies import answer_row
from erda.serve.service import Service

PATH = "/v1/predict"
ROUTE = SimpleNamespace(path=PATH)  # for the metrics


class Question(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The fields of `PredictBody` that one marked sentence needs."""

    text: Annotated[str, Meta(max_length=MOST_CHARACTERS)]
    top: Annotated[int, Meta(ge=1, le=1_000)] = TOP
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None


_decode = msgspec.json.Decoder(Question).decode
_encode = msgspec.json.Encoder().encode


class HotRoute:
    """ASGI middleware that answers one marked sentence, and hands everything else on."""

    def __init__(self, app: App, *, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a question, or hand the request on."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]  # whole: the guard has read it
        try:
            question = _decode(body)
            example = example_of(question.text)
        except (msgspec.MsgspecError, DataError, UnicodeError):
            await self._app(scope, replayed(body, receive), send)
            return
        scope["route"] = ROUTE
        try:
            found = await self._service.batcher.ask([example], top=question.top, least=question.min_confidence)
            content = _encode({"version": found.version.number, **answer_row(found.answers[0])})
        except Exception as fault:
            await refusal(refused(fault, self._service.folder))(scope, receive, send)
            return
        headers = [(b"content-length", str(len(content)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})
