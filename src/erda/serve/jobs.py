"""Jobs in the background: progress, results, and restarts.

    STORE.jobs/ID.json          the job as clients see it
    STORE.jobs/ID.request.json  the request, until the job is finished
    STORE.jobs/ID.result.json   the result
    STORE.jobs/ID.cancel        a client has cancelled it
    STORE.jobs/TOKEN.worker     locked by the process that runs jobs under this token, as long as it lives

Every process of a server runs the jobs that it accepted, and sees those of the others on disk. A job whose process died
runs again in the next process that starts; one that was running twice when its process died has failed. Running again
is safe: examples already taught are skipped.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from time import time
from typing import Any, Literal

import filelock

from erda.errors import ErdaError
from erda.files import read_json, remove_own, remove_unfinished, write_bytes, write_json
from erda.outputs import work_folder
from erda.serve.failures import Failure, Refused, refused
from erda.serve.limits import Limits

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Kind = Literal["teach", "extract", "review"]
Work = Callable[[dict[str, Any], Callable[[int, int], None]], dict[str, Any]]  # (request, progress) -> result
FINISHED = ("done", "failed", "cancelled")
MOST_RUNS = 2
PURPOSE = "jobs of a server"
BUSY = "another server has been writing its jobs for too long; try again"
TICK_SECONDS = 0.2  # between two records of progress on disk
_OWN = re.compile(r"[0-9a-f]{16}\.(json|request\.json|result\.json|cancel|worker)")


class CancelledError(Exception):
    """Raised inside a job that a client has cancelled."""


class StoppedError(Exception):
    """Raised inside a job when the server stops; the job runs again at the next start."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as clients see it; `failure` is set once it has failed."""

    id: str
    kind: Kind
    state: State
    created: float
    done: int = 0
    total: int = 0
    n_runs: int = 0
    worker: str = ""
    failure: dict[str, str] | None = None


class Jobs:
    """The jobs of a server, one at a time in each process. `work` does each kind."""

    def __init__(self, store: Path, work: dict[Kind, Work], limits: Limits) -> None:
        self.folder = store.with_name(f"{store.name}.jobs")
        self._store, self._work, self._limits = store, work, limits
        self._token, self._lock, self._stopping = secrets.token_hex(8), Lock(), False
        self._own: dict[str, Job] = {}  # waiting or running in this process
        self._alive: filelock.FileLock | None = None
        self._thread = ThreadPoolExecutor(1, "erda-jobs")

    def take_over(self) -> None:
        """Run the jobs of processes that died."""
        if not self.folder.is_dir():
            return
        with self._folder():
            remove_unfinished(self.folder)
            for worker in self.folder.glob("*.worker"):
                if worker.stem != self._token and _is_free(worker):
                    remove_own(worker)
            orphans = [one for one in self.list() if one.state not in FINISHED and not self._runs(one)]
            for one in orphans:
                if one.n_runs >= MOST_RUNS:
                    message = "The server ended twice while this job ran. Post it again in smaller parts."
                    failure = Failure(error="interrupted", message=message).model_dump()
                    self._save(replace(one, state="failed", failure=failure))
                else:
                    self._submit(replace(one, state="waiting", done=0, worker=self._token))

    def add(self, kind: Kind, request: dict[str, Any], *, total: int) -> Job:
        """Queue a job."""
        if len(self._own) >= self._limits.n_jobs:
            raise Refused(503, "queue_full", f"{len(self._own)} jobs wait already. Post it again later.")
        job = Job(secrets.token_hex(8), kind, "waiting", time(), total=total, worker=self._token)
        with self._folder():
            write_json(self._path(job.id, "request.json"), request)
            self._submit(job)
            finished = sorted((one for one in self.list() if one.state in FINISHED), key=lambda one: -one.created)
            for one in finished[self._limits.n_kept_jobs :]:
                for path in self.folder.glob(f"{one.id}.*"):
                    remove_own(path)
        return job

    def list(self) -> list[Job]:
        """All jobs, oldest first."""
        found = list[Job]()
        for path in self.folder.glob("*.json"):
            if _OWN.fullmatch(path.name) and path.name.count(".") == 1:
                with suppress(ErdaError):  # removed meanwhile
                    found.append(self.get(path.stem))
        return sorted(found, key=lambda one: one.created)

    def get(self, id: str) -> Job:
        """One job."""
        if own := self._own.get(id):
            return own
        path = self._path(id, "json")
        if not path.is_file():
            raise Refused(404, "unknown_job", f"There is no job '{id[:40]}'.", "id")
        return read_json(path, Job)

    def result(self, id: str) -> Any:
        """The result of a finished job; None for any other."""
        path = self._path(id, "result.json")
        return read_json(path, dict) if path.is_file() else None

    def cancel(self, id: str) -> Job:
        """Stop a job at its next step; a finished job stays as it is."""
        job = self.get(id)
        if job.state not in FINISHED:
            write_bytes(self._path(id, "cancel"), b"")
        return job

    def stop(self) -> None:
        """Interrupt the running job; it runs again at the next start, as those that wait do."""
        self._stopping = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._alive:
            self._alive.release()
            remove_own(self._path(self._token, "worker"))

    # -- one job -------------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        self._hold()
        self._save(job)
        self._thread.submit(self._run, job)

    def _run(self, job: Job) -> None:
        if self._stopping:
            return
        job = replace(job, state="running", n_runs=job.n_runs + 1)
        saved_at = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal job, saved_at
            job = replace(job, done=min(done, total), total=total)
            self._own[job.id] = job
            self._check(job)
            if time() - saved_at > TICK_SECONDS:
                saved_at = time()
                self._save(job)

        try:
            self._save(job)
            self._check(job)
            result = self._work[job.kind](read_json(self._path(job.id, "request.json"), dict), progress)
            write_json(self._path(job.id, "result.json"), result)
            job = replace(job, state="done", done=job.total)
        except CancelledError:
            job = replace(job, state="cancelled")
        except StoppedError:
            job = replace(job, state="waiting", n_runs=job.n_runs - 1)
        except Exception as fault:
            job = replace(job, state="failed", failure=refused(fault, self._store).failure.model_dump())
        with suppress(ErdaError):  # a full disk: the job runs again at the next start
            self._save(job)
            if job.state in FINISHED:
                remove_own(self._path(job.id, "request.json"))

    def _check(self, job: Job) -> None:
        if self._path(job.id, "cancel").exists():
            raise CancelledError
        if self._stopping:
            raise StoppedError

    def _save(self, job: Job) -> None:
        if job.worker == self._token and job.state not in FINISHED:
            self._own[job.id] = job
        try:
            write_json(self._path(job.id, "json"), job)
        finally:
            if job.state in FINISHED:
                self._own.pop(job.id, None)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _path(self, id: str, ending: str) -> Path:
        name = f"{id}.{ending}"
        if not _OWN.fullmatch(name):
            raise Refused(404, "unknown_job", f"There is no job '{id[:40]}'.", "id")
        return self.folder / name

    @contextmanager
    def _folder(self) -> Iterator[None]:
        with self._lock, work_folder(self.folder, purpose=PURPOSE, busy=BUSY):
            yield

    def _hold(self) -> None:
        """Lock the file that tells other processes that this one is alive."""
        if self._alive is None:
            self._alive = filelock.FileLock(self._path(self._token, "worker"), thread_local=False)
            self._alive.acquire(timeout=1)

    def _runs(self, job: Job) -> bool:
        """Whether the process of a job is alive."""
        worker = self._path(job.worker, "worker")
        return job.worker == self._token or (worker.exists() and not _is_free(worker))


def _is_free(worker: Path) -> bool:
    lock = filelock.FileLock(worker)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return False
    lock.release()
    return True
