"""The extractor behind a server: the version that answers, the thread that writes, the queue of questions."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from threadpoolctl import threadpool_limits

from erda.app.extractor import Extractor
from erda.app.store import HEAD
from erda.app.version import Version
from erda.encoders.contract import sharing
from erda.errors import ErdaError
from erda.files import file_state
from erda.serve.batching import Batcher
from erda.serve.failures import Refused
from erda.serve.limits import Limits
from erda.text.marks import example_from_marks

T = TypeVar("T")
READERS = 4  # threads for explanations, evaluations and tagging
FOLLOW_SECONDS = 2.0  # to wait for a version that another process has taught
SWITCH_SECONDS = 0.0005
WARM = example_from_marks("[[a]] and {{b}}")


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

    def __init__(self, extractor: Extractor, limits: Limits) -> None:
        self.extractor, self.limits, self.version = extractor, limits, extractor.version
        self.trouble, self.is_stopping, self.is_warm = "", False, False
        self._readers = ThreadPoolExecutor(READERS, "erda-reads")
        self._writer = ThreadPoolExecutor(1, "erda-writes")
        self._lock, self._n_writes = Lock(), 0
        self._seen: tuple[int, ...] | None = ()  # nothing yet
        self.batcher = Batcher(self.newest, most_queued=limits.n_queued)
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
            if self._n_writes >= self.limits.n_writes:
                raise Refused(503, "queue_full", f"{self._n_writes:,} teachings wait already. Teach again in a moment.")
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
                version.predict(WARM, top=1)
        if not self.is_warm:
            calm_interpreter()
        self.version, self.is_warm = version, True

    def stop(self) -> None:
        """Finish the questions in the queue and the writes in progress."""
        self.batcher.stop()
        self._readers.shutdown(wait=True)
        self._writer.shutdown(wait=True)
