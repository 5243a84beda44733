"""The extractor behind a server: the version that answers, the thread that writes, the queue of questions."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from threadpoolctl import threadpool_limits

from erda.answers import Answer
from erda.app.extractor import Extractor
from erda.app.store import HEAD
from erda.app.version import Version
from erda.encoders.contract import sharing
from erda.errors import ErdaError
from erda.files import file_state
from erda.serve.failures import Refused
from erda.text.marks import example_from_marks
from erda.types import Example

T = TypeVar("T")
READERS = 4  # threads for explanations, evaluations and tagging
FOLLOW_SECONDS = 2.0  # to wait for a version that another process has taught
SWITCH_SECONDS = 0.0005
WARM = example_from_marks("[[a]] and {{b}}")
BATCH_SIZE = 64  # questions that are embedded together
PART_SIZE = 16  # questions of one request in a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of a server; a request beyond one is rejected with the status named beside it."""

    body_size: int = 8_000_000  # 413: bytes of a body
    n_batch: int = 1_000  # 422: sentences or examples of a request that is answered at once
    text_size: int = 100_000  # 422: characters of a document that is extracted from at once
    n_job: int = 50_000  # 422: sentences, examples or documents of a job
    n_active: int = 200  # 503: requests in progress
    n_jobs: int = 20  # 503: unfinished jobs; as many finished ones are kept with their results


@dataclass(frozen=True, slots=True, eq=False)
class QueuedPart:
    """Questions of one request that wait; without a version, the current one answers."""

    questions: Sequence[Example]
    top: int
    least: float | None
    version: Version | None
    future: Future[tuple[Version, list[Answer]]] = field(default_factory=Future)


class Batcher:
    """Answer the questions of all requests in batches, in one thread; `current` returns the version that answers.

    A request waits with one part at a time, so that a large request delays nobody.
    """

    def __init__(self, current: Callable[[], Version]) -> None:
        self._current, self._queue = current, deque[QueuedPart]()
        self._thread = ThreadPoolExecutor(1, "erda-answers")

    async def ask(self, questions: Sequence[Example], *, top: int, least: float | None) -> tuple[Version, list[Answer]]:
        """Answer all questions from the version that is current at the first batch."""
        version: Version | None = None
        answers = list[Answer]()
        for start in range(0, len(questions), PART_SIZE):
            part = QueuedPart(questions[start : start + PART_SIZE], top, least, version)
            self._queue.append(part)
            try:
                self._thread.submit(self._answer_batch)
            except RuntimeError:
                raise Refused(503, "stopping", "The server is stopping.") from None
            found = await asyncio.wrap_future(part.future)
            version, answers = found[0], [*answers, *found[1]]
        return version or self._current(), answers

    def stop(self) -> None:
        """Answer what is queued, then end the thread."""
        self._thread.shutdown(wait=True)

    def _answer_batch(self) -> None:
        groups: dict[object, list[QueuedPart]] = {}
        size = 0
        while self._queue and size < BATCH_SIZE:
            one = self._queue.popleft()
            if one.future.set_running_or_notify_cancel():  # else the client went away
                groups.setdefault((id(one.version), one.top, one.least), []).append(one)
                size += len(one.questions)
        for group in groups.values():
            first, questions = group[0], [question for one in group for question in one.questions]
            try:
                version = first.version or self._current()
                found = iter(version.predict(questions, top=first.top, min_confidence=first.least))
            except Exception as fault:
                for one in group:
                    one.future.set_exception(fault)
            else:
                for one in group:
                    one.future.set_result((version, list(islice(found, len(one.questions)))))


def calm_interpreter() -> None:
    """Shorten the pauses that Python itself causes in answers during a teaching.

    Objects that live as long as the server are not collected again and again, a thread gives way after half a
    millisecond instead of five, and the small matrices of a fit use one core.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    threadpool_limits(1, "blas")


class Service:
    """Questions are answered from `version`, an immutable snapshot; a write replaces it when it is ready to answer.

    Writes run one after another in one thread. What another process teaches is noticed by the file that names the
    current version. If the store is gone or damaged, `version` keeps answering and `trouble` says what is wrong.
    """

    def __init__(self, extractor: Extractor, limits: ServerLimits) -> None:
        self.extractor, self.limits, self.version = extractor, limits, extractor.version
        self.trouble, self.is_warm = "", False
        self.is_stopping: Callable[[], bool] = lambda: False
        self._readers = ThreadPoolExecutor(READERS, "erda-reads")
        self._writer = ThreadPoolExecutor(1, "erda-writes")
        self._lock, self._n_writes = Lock(), 0
        self._seen: tuple[int, ...] | None = ()  # nothing yet
        self.batcher = Batcher(self.newest)
        self._writer.submit(self._publish)

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self.extractor.folder

    # -- questions -----------------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[Version], T]) -> T:
        """Run slow work on the current version in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: work(self.newest()))

    def newest(self) -> Version:
        """The version that answers, after a look at what other processes have taught."""
        head = file_state(self.folder / HEAD)
        with self._lock:
            loaded = self._writer.submit(self._refresh) if head != self._seen else None
            self._seen, is_free = head, self._n_writes == 0
        if loaded and is_free:  # else the write in progress loads it, and answers go on meanwhile
            with suppress(TimeoutError):
                loaded.result(FOLLOW_SECONDS)
        return self.version

    def _refresh(self) -> None:
        try:
            self.extractor.refresh()
            self.trouble = ""
        except ErdaError as fault:
            self.trouble = str(fault) if self.version.relations else ""  # else nothing was ever taught
            return
        if self.extractor.version is not self.version:  # else this process has taught it
            self._publish()

    # -- writes --------------------------------------------------------------------------------------------------------

    async def write(self, work: Callable[[Extractor], T]) -> T:
        """Change the extractor, after all earlier writes; the next answer comes from the new version."""
        return await asyncio.wrap_future(self.write_later(work))

    def write_later(self, work: Callable[[Extractor], T]) -> Future[T]:
        """Queue a write."""
        with self._lock:
            self._n_writes += 1
        return self._writer.submit(self._written, work)

    def _written(self, work: Callable[[Extractor], T]) -> T:
        try:
            with sharing():
                done = work(self.extractor)
                self._publish()
            self.trouble = ""
            return done
        finally:
            with self._lock:
                self._n_writes -= 1

    def _publish(self) -> None:
        """Answer from the newest version, once its method is built and fitted."""
        version = self.extractor.version
        with suppress(ErdaError):
            if version.relations:
                version.predict([WARM], top=1)
        if not self.is_warm:
            calm_interpreter()
        self.version, self.is_warm = version, True

    def stop(self) -> None:
        """Finish the questions in the queue and the writes in progress."""
        self.is_stopping = lambda: True
        self.batcher.stop()
        self._readers.shutdown(wait=True)
        self._writer.shutdown(wait=True)


def part_of_server(name: str) -> Any:
    """The dependency of routes on a part of the server, which `build_application` keeps in its state."""

    async def found(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(found)


TheService = Annotated[Service, part_of_server("service")]
