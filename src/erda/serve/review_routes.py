"""Routes of a review: texts, the next pair, judgements, undo. There is one review per store."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from erda.answers import Progress
from erda.app.review import PER_VERSION, ReviewView, SharedReview
from erda.serve import bodies
from erda.serve.failures import FAILURES, Refused, replies
from erda.serve.jobs import ACCEPTED, TheJobs
from erda.serve.service import Service, TheService, part_of_server
from erda.serve.wire import ReviewReply, value_row

router = APIRouter(prefix="/v1/review", tags=["review"], responses=FAILURES)
SAVE_SECONDS = 2.0  # after the last judgement, if there are fewer
VIEW = replies(ReviewReply, "The next pair.")


class ReviewDesk:
    """The review of a server, and a timer that turns judgements into versions."""

    def __init__(self, service: Service) -> None:
        self.shared, self._service = SharedReview(service.folder), service
        self._timer: asyncio.TimerHandle | None = None

    async def next(self, relation: str | None = None, keys: list[str] | None = None) -> JSONResponse:
        """Answer with the next pair; at the end of the texts, pending judgements become a version first."""
        look = partial(self.shared.view, relation=relation)
        view = await self._service.read(look, "review")
        if view.n_waiting and view.current is None:
            await self._service.write(self.shared.save)
            view = await self._service.read(look, "review")
        elif view.n_waiting:
            self._save_later(0 if view.n_waiting >= PER_VERSION else SAVE_SECONDS)
        return JSONResponse(view_row(view, keys))

    def save_soon(self) -> None:
        """Make a version of the pending judgements; if that fails, they stay on disk."""
        self._service.write_later(self.shared.save)

    def _save_later(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.save_soon)

    def stop(self) -> None:
        """Make a version of the pending judgements."""
        if self._timer:
            self._timer.cancel()
        self.save_soon()


TheDesk = Annotated[ReviewDesk, part_of_server("desk")]


@router.get("", responses=VIEW)
async def review_state(
    desk: TheDesk, service: TheService, relation: Annotated[bodies.Name | None, Query()] = None
) -> Response:
    """The state of the review: counts, quality so far, and the reason if nothing is left. No pair is handed out."""
    view = await service.read(lambda version: desk.shared.view(version, relation=relation), "review")
    return JSONResponse({**view_row(view), "pair": None})


@router.post("/texts", responses={**VIEW, **ACCEPTED})
async def review_texts(body: bodies.ReviewBody, desk: TheDesk, service: TheService, jobs: TheJobs) -> Response:
    """Review these texts instead of the earlier ones; decided pairs are not shown again. An empty list ends it."""

    def begin(progress: Progress | None = None) -> dict[str, Any]:
        version = service.newest()
        desk.shared.begin(version, body.texts, pronouns=body.pronouns, progress=progress)
        return {"version": version.number, "n_texts": len(body.texts)}

    if body.job or sum(map(len, body.texts)) > service.settings.text_size:
        bodies.refuse_many(body.texts, service.settings.n_job, "documents")
        return jobs.add("review", begin, len(body.texts))
    await service.read(lambda version: begin(), "heavy")
    return await desk.next()


@router.post("/next", responses=VIEW)
async def next_pair(body: bodies.NextPairBody, desk: TheDesk) -> Response:
    """The most useful pair; the same one until it is decided."""
    return await desk.next(body.relation)


@router.post("/judge", responses=VIEW)
async def judge_pair(body: bodies.JudgePairBody, desk: TheDesk, service: TheService) -> Response:
    """Decide about a pair and get the next; the judgement is on disk before the answer."""
    about: dict[str, Any] = {"holds": body.holds, "instead": body.instead, "relation": body.relation}
    if not await service.read(lambda version: desk.shared.judge(version, body.key, **about), "review"):
        raise Refused(409, "already_judged", "This pair was judged before, maybe on another device.", "key")
    return await desk.next(body.relation, [body.key])


@router.post("/accept", responses=VIEW)
async def accept_pairs(body: bodies.AcceptPairsBody, desk: TheDesk, service: TheService) -> Response:
    """Accept all pairs above a confidence, as one version."""
    least, relation = body.min_confidence, body.relation
    keys = await service.read(lambda version: desk.shared.accept(version, least=least, relation=relation), "review")
    await service.write(desk.shared.save)
    return await desk.next(relation, keys)


@router.post("/undo", responses=VIEW)
async def undo_pairs(body: bodies.UndoPairsBody, desk: TheDesk, service: TheService) -> Response:
    """Take decisions back, including those that are part of a version; the last pair is shown again."""
    keys = await service.write(lambda extractor: desk.shared.undo(extractor, body.keys))
    return await desk.next(body.relation, keys)


def view_row(view: ReviewView, keys: list[str] | None = None) -> dict[str, Any]:
    """A view as JSON; a pair comes with its sentence."""
    one, row = view.current, asdict(replace(view, current=None))
    del row["current"], row["unplaced"]
    pair = value_row(replace(one, confidence=round(one.confidence, 4))) if one else None
    reason = "" if one else f"{view.reason} {view.unplaced}".strip()
    return {"version": view.version, "pair": pair, **row, "reason": reason, "keys": keys or []}
