"""The extractor behind a server: the version that answers, the threads that read, the thread that writes."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Request
from threadpoolctl import threadpool_limits

from erda.answers import Answer
from erda.app.extractor import Extractor
from erda.app.store import HEAD
from erda.app.version import Version
from erda.encoders.contract import sharing
from erda.encoders.onnx_encoder import available_threads
from erda.errors import ErdaError
from erda.files import file_state
from erda.serve.failures import Refused, stopping
from erda.text.marks import example_from_marks
from erda.types import Example

T = TypeVar("T")
Lane = Literal["listing", "sentence", "text", "review", "heavy"]
THREADS: dict[Lane, int] = {"listing": 4, "sentence": available_threads(), "text": 4, "review": 1, "heavy": 2}
FOLLOW_SECONDS, FIRST_SECONDS = 2.0, 60.0  # to wait for a version that another process has taught; for the first one
SWITCH_SECONDS = 0.0005
WARM = example_from_marks("[[a]] and {{b}}")
PART_SIZE = 16  # sentences of a request that are answered before it is the turn of others


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The store to serve, the address, who may ask, and limits: a request beyond one gets the status beside it."""

    store: Path
    host: str = "127.0.0.1"
    port: int = 8111
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()  # further names of the server
    _: KW_ONLY
    body_size: int = 8_000_000  # 413: bytes of a body
    n_batch: int = 1_000  # 422: sentences or examples of a request that is answered at once
    text_size: int = 100_000  # 422: characters of a document that is extracted from at once
    n_job: int = 50_000  # 422: sentences, examples or documents of a job
    n_active: int = 200  # 503: requests in progress
    n_heavy: int = 8  # 503: requests in progress that search many texts, evaluate or export
    n_jobs: int = 20  # 503: unfinished jobs; as many finished ones are kept with their results


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

    def __init__(self, extractor: Extractor, settings: ServerSettings) -> None:
        self.extractor, self.settings, self.version = extractor, settings, extractor.version
        self.folder = extractor.folder  # of the store
        self.trouble, self.is_warm = "", False
        self.is_stopping: Callable[[], bool] = lambda: False
        self._lanes = {lane: ThreadPoolExecutor(n, f"erda-{lane}") for lane, n in THREADS.items()}
        self._writer = ThreadPoolExecutor(1, "erda-writes")
        self._lock, self._n_writes, self._n_heavy = Lock(), 0, 0
        self._seen: tuple[int, ...] | None = ()  # nothing yet
        self._loading = self._writer.submit(self._publish)

    # -- questions -----------------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[Version], T], lane: Lane = "listing") -> T:
        """Run work on the current version in a thread of its lane; no lane waits for another.

        Heavy work beyond its limit is rejected.
        """
        is_heavy = lane == "heavy"
        if is_heavy and self._n_heavy >= self.settings.n_heavy:
            raise Refused(503, "queue_full", f"{self._n_heavy} long requests are in progress. Ask again later.")
        self._n_heavy += is_heavy
        try:
            return await self._run(lane, lambda: work(self.newest()))
        finally:
            self._n_heavy -= is_heavy

    async def predict(
        self, questions: Sequence[Example], *, top: int, least: float | None
    ) -> tuple[Version, list[Answer]]:
        """Answer all questions from one version; a large request takes turns with small ones."""
        answers, asked = list[Answer](), await self.read(lambda version: version)
        parts = (questions[start : start + PART_SIZE] for start in range(0, len(questions), PART_SIZE))
        for predict in (partial(asked.predict, part, top=top, min_confidence=least) for part in parts):
            answers += await self._run("sentence", predict)
        return asked, answers

    async def _run(self, lane: Lane, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._lanes[lane], work)

    def refuse_stopping(self, *progress: int) -> None:
        """Reject work that waits or takes long once the server is stopping; a `Progress` of long work."""
        if self.is_stopping():
            raise stopping()

    def newest(self) -> Version:
        """The version that answers, after a look at what other processes have taught."""
        head = file_state(self.folder / HEAD)
        with self._lock:
            if head != self._seen:
                self._seen, self._loading = head, self._writer.submit(self._refresh)
            loading, is_free = self._loading, self._n_writes == 0
        if is_free:  # else the write in progress loads it, and answers go on meanwhile
            wait([loading], FOLLOW_SECONDS if self.version.relations else FIRST_SECONDS)
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
        """Change the extractor, after all earlier writes; the next answer comes from the new version.

        A change that still waits when the server stops is rejected.
        """

        def work_unless_stopping(extractor: Extractor) -> T:
            self.refuse_stopping()
            return work(extractor)

        return await asyncio.wrap_future(self.write_later(work_unless_stopping))

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
        """Finish the work in progress."""
        for pool in (*self._lanes.values(), self._writer):
            pool.shutdown(wait=True)


def part_of_server(name: str) -> Any:
    """The dependency of routes on a part of the server, which `build_application` keeps in its state."""

    async def found(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(found)


TheService = Annotated[Service, part_of_server("service")]
