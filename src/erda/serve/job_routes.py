"""Routes of jobs: list, result, progress as events, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel

from erda.serve.bodies import refuse_many
from erda.serve.failures import Json, Refused
from erda.serve.jobs import FINISHED, Job, Jobs, Kind
from erda.serve.limits import Limits
from erda.serve.replies import JobReply, JobsReply
from erda.serve.routing import FAILURES, FAILURES_IN_JSON, TheJobs, TheService, replies

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=FAILURES)
POLL_SECONDS = 0.1
Id = Annotated[str, Path(max_length=40, examples=["0123456789abcdef"])]


async def job_of(id: Id, jobs: TheJobs) -> Job:
    """The job of a path; unknown ones are rejected before an answer begins."""
    return jobs.get(id)


TheJob = Annotated[Job, Depends(job_of)]
UNKNOWN: dict[int | str, dict[str, Any]] = {404: FAILURES[422] | {"description": "There is no such job."}}


@router.get("", responses=replies(JobsReply, "All jobs."))
async def list_jobs(jobs: TheJobs) -> Response:
    """List all jobs, oldest first, without their results."""
    return Json({"jobs": [job_row(one) for one in await asyncio.to_thread(jobs.list)]})


@router.get("/{id}", responses={**replies(JobReply, "The job."), **UNKNOWN})
async def get_job(job: TheJob, jobs: TheJobs) -> Response:
    """A job with its progress, and its result once it is done."""
    result = await asyncio.to_thread(jobs.result, job.id) if job.state == "done" else None
    return Json({**job_row(job), "result": result})


@router.delete("/{id}", responses={**replies(JobReply, "The job; it stops at its next step."), **UNKNOWN})
async def cancel_job(id: Id, jobs: TheJobs) -> Response:
    """Cancel a job. A teaching that is cancelled changes nothing."""
    return Json(job_row(jobs.cancel(id)))


@router.get(
    "/{id}/events",
    response_class=EventSourceResponse,
    responses={**FAILURES_IN_JSON, 404: FAILURES_IN_JSON[422] | {"description": "There is no such job."}},
)
async def job_events(job: TheJob, jobs: TheJobs, service: TheService) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events `progress`, each with the job, until it is finished or the server stops."""
    yield ServerSentEvent(event="progress", data=job_row(job))
    with suppress(Refused):  # removed meanwhile
        while job.state not in FINISHED and not service.is_stopping():
            await asyncio.sleep(POLL_SECONDS)
            seen, job = job, jobs.get(job.id)
            if job != seen:
                yield ServerSentEvent(event="progress", data=job_row(job))


def added_job(jobs: Jobs, kind: Kind, body: BaseModel, n_parts: int, limits: Limits) -> Json:
    """Queue a request as a job and answer with it."""
    refuse_many(range(n_parts), limits.n_job, "examples" if kind == "teach" else "documents")
    return Json(job_row(jobs.add(kind, body.model_dump(mode="json"), total=n_parts)), 202)


def job_row(job: Job) -> dict[str, Any]:
    """A job as clients see it."""
    row = asdict(job)
    return {name: row[name] for name in ("id", "kind", "state", "done", "total", "created", "failure")}
