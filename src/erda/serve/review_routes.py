"""Routes of a review: texts, the next pair, judgements, undo. Any number of devices review the same texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from erda.app.candidates import Candidate
from erda.app.review import ReviewView, SharedReview
from erda.errors import ErdaError
from erda.serve.bodies import Body, Name, ReviewBody, shown
from erda.serve.failures import Json, Refused
from erda.serve.job_routes import added_job
from erda.serve.replies import JobReply, Row, example_row
from erda.serve.routing import FAILURES, TheJobs, TheService, replies
from erda.serve.service import Service

router = APIRouter(prefix="/v1/review", tags=["review"], responses=FAILURES)
T = TypeVar("T")
PER_VERSION = 10  # judgements
SAVE_SECONDS = 2.0  # after the last judgement, if there are fewer
Key = Annotated[str, Field(pattern="^[0-9a-f]{16}$", description="`key` of a pair")]
Device = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{0,64}$", description="a name that the device chooses")]


class NextBody(Body):
    """The device that shows the pair; `relation` limits the review to one."""

    device: Device = ""
    relation: Name | None = None

    model_config = shown({"device": "phone"}, {"device": "phone", "relation": "founded by"})


class ReviewJudgeBody(NextBody):
    """A pair, and whether its relation holds; null skips it. `instead` is the relation that holds, if another does."""

    key: Key
    holds: bool | None
    instead: Name | None = None

    model_config = shown({"device": "phone", "key": "0123456789abcdef", "holds": True})


class AcceptBody(NextBody):
    """Accept all pairs of at least this confidence."""

    min_confidence: Annotated[float, Field(ge=0, le=1)]

    model_config = shown({"device": "phone", "min_confidence": 0.99})


class ReviewUndoBody(NextBody):
    """The pairs whose decisions are taken back; none: the last decision of all devices."""

    keys: Annotated[tuple[Key, ...], Field(max_length=100_000)] = ()

    model_config = shown({"device": "phone"})


class PairReply(BaseModel):
    """A pair of entities in a sentence, and the relation that may hold from head to tail."""

    model_config = {"extra": "allow"}

    key: str
    text: str
    head: str
    tail: str
    tokens: list[str]
    head_span: list[int]
    tail_span: list[int]
    relation: str
    confidence: float


class ReviewReply(BaseModel):
    """The pair to decide about, or null and the reason; counts; `keys` are the pairs that the call has decided."""

    version: int
    pair: PairReply | None
    reason: str
    n_texts: int
    n_left: int
    n_judged: int
    n_waiting: int
    right: list[bool]
    n_yes: dict[str, int]
    n_no: dict[str, int]
    confidences: list[float]
    keys: list[str]


VIEW = replies(ReviewReply, "What the device shows next.")


@router.get("", responses=VIEW)
async def review(request: Request, service: TheService, relation: Annotated[Name | None, Query()] = None) -> Response:
    """The state of the review: counts, quality so far, and the reason if nothing is left. No pair is handed out."""
    return Json(view_row(await desk_of(request).run(lambda one: one.view(service.newest(), relation=relation))))


@router.post("/texts", responses={**VIEW, **replies(JobReply, "Long texts: a job.", status=202)})
async def texts(body: ReviewBody, request: Request, service: TheService, jobs: TheJobs) -> Response:
    """Review these texts instead of the earlier ones; decided pairs are not shown again. An empty list ends it."""
    if body.job or sum(map(len, body.texts)) > service.limits.text_size:
        return added_job(jobs, "review", body, len(body.texts), service.limits)
    desk = desk_of(request)
    await service.read(lambda version: desk.shared.begin(version, body.texts, pronouns=body.pronouns))
    return await desk.next(NextBody(device=body.device))


@router.post("/next", responses=VIEW)
async def next_pair(body: NextBody, request: Request) -> Response:
    """The pair on the screen of this device, or the most useful one that is on no other screen."""
    return await desk_of(request).next(body)


@router.post("/judge", responses=VIEW)
async def judge(body: ReviewJudgeBody, request: Request, service: TheService) -> Response:
    """Decide about a pair and get the next; the judgement is on disk before the answer."""
    desk = desk_of(request)
    is_first = await desk.run(
        lambda one: one.judge(
            service.newest(), body.device, body.key, holds=body.holds, instead=body.instead, relation=body.relation
        )
    )
    if not is_first:
        raise Refused(409, "already_judged", "This pair was judged before, maybe on another device.", "key")
    return await desk.next(body, [body.key])


@router.post("/accept", responses=VIEW)
async def accept(body: AcceptBody, request: Request, service: TheService) -> Response:
    """Accept all pairs above a confidence that are on no other screen, as one version."""
    desk = desk_of(request)
    keys = await desk.run(
        lambda one: one.accept(service.newest(), body.device, least=body.min_confidence, relation=body.relation)
    )
    await service.write(desk.shared.save)
    return await desk.next(body, keys)


@router.post("/undo", responses=VIEW)
async def undo(body: ReviewUndoBody, request: Request, service: TheService) -> Response:
    """Take decisions back, including those that are part of a version; the last pair is shown again."""
    desk = desk_of(request)
    keys = await service.write(lambda extractor: desk.shared.undo(extractor, body.device, body.keys))
    return await desk.next(body, keys)


class ReviewDesk:
    """The review of a server: one thread for its calls, and a timer that turns judgements into versions."""

    def __init__(self, service: Service) -> None:
        self.shared, self._service = SharedReview(service.folder), service
        self._thread = ThreadPoolExecutor(1, "erda-review")
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, work: Callable[[SharedReview], T]) -> T:
        """Call the review in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.shared)

    async def next(self, body: NextBody, keys: list[str] | None = None) -> Json:
        """What the device shows next; at the end of the texts, waiting judgements become a version first."""

        def look(one: SharedReview) -> ReviewView:
            return one.view(self._service.newest(), body.device, relation=body.relation)

        view = await self.run(look)
        if view.n_waiting and view.current is None:
            await self._service.write(self.shared.save)
            view = await self.run(look)
        elif view.n_waiting:
            self._save_later(0 if view.n_waiting >= PER_VERSION else SAVE_SECONDS)
        return Json(view_row(view, keys))

    def save_soon(self) -> None:
        """Make a version of the judgements that wait; if that fails, they wait on disk."""
        with suppress(Refused):
            self._service.write_later(self._save)

    def _save(self, extractor: Any) -> None:
        with suppress(ErdaError):
            self.shared.save(extractor)

    def _save_later(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.save_soon)

    def stop(self, *, saves: bool = True) -> None:
        """Make a version of the judgements that wait, and end the thread."""
        if self._timer:
            self._timer.cancel()
        if saves:
            self.save_soon()
        self._thread.shutdown(wait=True)


def desk_of(request: Request) -> ReviewDesk:
    """The review of the server."""
    found: ReviewDesk = request.app.state.desk
    return found


def view_row(view: ReviewView, keys: list[str] | None = None) -> Row:
    """A view as JSON."""
    counts = asdict(view.progress)
    names = ("n_left", "n_judged", "right", "n_yes", "n_no")
    return {
        "version": view.version,
        "pair": pair_row(view.current) if view.current else None,
        "reason": view.reason,
        "n_texts": view.n_texts,
        "n_waiting": view.n_waiting,
        **{name: counts[name] for name in names},
        "confidences": view.confidences,
        "keys": keys or [],
    }


def pair_row(one: Candidate) -> Row:
    """A pair with its sentence."""
    about = {"relation": one.relation, "confidence": round(one.confidence, 4)}
    return {"key": one.key, **example_row(one.example), **about}
