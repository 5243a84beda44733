"""Jobs in the background: large teachings, extraction from many documents, reviews of long texts.

Jobs live in the memory of the server, one runs at a time, and they end with the server. A teaching that is cancelled
or interrupted changes nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from time import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from erda.answers import Progress
from erda.serve.failures import FAILURES, FAILURES_IN_JSON, Refused, refused, replies
from erda.serve.service import Service, part_of_server
from erda.serve.wire import JobReply, OpenModel

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=FAILURES)
FINISHED = ("done", "failed", "cancelled")
POLL_SECONDS = 0.1
STOPPED = "The server stopped before this job was done. Post it again."
Work = Callable[[Progress], dict[str, Any]]


class Job(JobReply):
    """A job; `failure` is set once it has failed, `result` once it is done."""

    is_cancelled: Annotated[bool, Field(exclude=True)] = False

    def row(self) -> dict[str, Any]:
        """The job without its result."""
        return self.model_dump(exclude={"result"})


class Jobs:
    """The jobs of a server, oldest first."""

    def __init__(self, service: Service) -> None:
        self.by_id, self._service = dict[str, Job](), service
        self._thread = ThreadPoolExecutor(1, "erda-jobs")

    def add(self, kind: Literal["teach", "extract", "review"], work: Work, total: int) -> JSONResponse:
        """Queue a job and answer with it; the oldest finished jobs are forgotten."""
        unfinished = sum(one.state not in FINISHED for one in self.by_id.values())
        if unfinished >= self._service.settings.n_jobs:
            raise Refused(503, "queue_full", f"{unfinished} jobs wait already. Post it again later.")
        finished = [id for id, one in self.by_id.items() if one.state in FINISHED]
        for id in finished[: -self._service.settings.n_jobs]:
            del self.by_id[id]
        job = Job(id=secrets.token_hex(8), kind=kind, state="waiting", done=0, total=total, created=time())
        self.by_id[job.id], accepted = job, JSONResponse(job.row(), 202)
        self._thread.submit(self._run, job, work)
        return accepted

    def stop(self) -> None:
        """Wait for all jobs, which fail at their next step while the server is stopping."""
        self._thread.shutdown(wait=True)

    def _run(self, job: Job, work: Work) -> None:
        def progress(done: int, total: int) -> None:
            job.done, job.total = min(done, total), total
            if job.is_cancelled or self._service.is_stopping():
                raise Refused(503, "interrupted", STOPPED)

        try:
            progress(0, job.total)
            job.state = "running"
            job.result = work(progress)
            job.done, job.state = job.total, "done"
        except Exception as fault:
            if not job.is_cancelled:
                job.failure = refused(fault, self._service.folder).failure
            job.state = "cancelled" if job.is_cancelled else "failed"


# -- routes ------------------------------------------------------------------------------------------------------------


TheJobs = Annotated[Jobs, part_of_server("jobs")]


async def job_of(id: Annotated[str, Path(max_length=40, examples=["0123456789abcdef"])], jobs: TheJobs) -> Job:
    """The job of a path; unknown ones are rejected before an answer begins."""
    if id not in jobs.by_id:
        raise Refused(404, "unknown_job", f"There is no job '{id[:40]}'. Jobs end with the server.", "id")
    return jobs.by_id[id]


TheJob = Annotated[Job, Depends(job_of)]
JOB, ACCEPTED = replies(JobReply, "The job."), replies(JobReply, "Large work: a job.", status=202)


@router.get("", responses=replies(OpenModel, "All jobs, oldest first: `jobs`."))
async def list_jobs(jobs: TheJobs) -> Response:
    """List all jobs, oldest first, without their results."""
    return JSONResponse({"jobs": [one.row() for one in list(jobs.by_id.values())]})


@router.get("/{id}", responses=JOB)
async def get_job(job: TheJob) -> Response:
    """A job with its progress, and its result once it is done."""
    return JSONResponse(job.model_dump())


@router.delete("/{id}", responses=JOB)
async def cancel_job(job: TheJob) -> Response:
    """Cancel a job, which stops at its next step. A teaching that is cancelled changes nothing."""
    job.is_cancelled = True
    return JSONResponse(job.row())


@router.get("/{id}/events", response_class=EventSourceResponse, responses=FAILURES_IN_JSON)
async def job_events(job: TheJob) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events `progress`, each with the job, until it is finished; the stop of the server ends it."""
    seen: dict[str, Any] = {}
    while seen.get("state") not in FINISHED:
        if (row := job.row()) != seen:
            seen = row
            yield ServerSentEvent(event="progress", data=row)
        else:
            await asyncio.sleep(POLL_SECONDS)
