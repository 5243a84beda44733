"""Micro-batching: one thread answers all questions that are queued, in turns, so that a large request delays nobody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread

from erda.answers import Answer
from erda.app.version import Version
from erda.serve.failures import Refused
from erda.types import Example

AT_ONCE = 64  # questions per turn
SHARE = 16  # questions of one request per turn, while others wait


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers to one request, all from the same version."""

    version: Version
    answers: tuple[Answer, ...]


@dataclass(slots=True, eq=False)
class Waiting:
    """A request in the queue; `version` is set by its first turn."""

    questions: Sequence[Example]
    top: int
    least: float | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answered]
    version: Version | None = None
    answers: list[Answer] = field(default_factory=list)


class Batcher:
    """The queue of questions and the thread that answers them; `current` gives the version to answer from."""

    def __init__(self, current: Callable[[], Version], *, most_queued: int) -> None:
        self._current, self._most_queued = current, most_queued
        self._waiting: deque[Waiting] = deque()
        self._change, self._stopped, self.n_queued = Condition(), False, 0
        self._thread = Thread(target=self._run, name="erda-answers", daemon=True)
        self._thread.start()

    async def ask(self, questions: Sequence[Example], *, top: int, least: float | None = None) -> Answered:
        """Answer questions, all from the version that is current at their first turn."""
        loop = asyncio.get_running_loop()
        one = Waiting(questions, top, least, loop, loop.create_future())
        with self._change:
            if self._stopped:
                raise Refused(503, "stopping", "The server is stopping.")
            if self.n_queued + len(questions) > self._most_queued:
                message = f"{self.n_queued:,} questions wait already. Ask again in a moment."
                raise Refused(503, "queue_full", message)
            self.n_queued += len(questions)
            self._waiting.append(one)
            self._change.notify()
        return await one.future

    def stop(self) -> None:
        """Answer what is queued, then end the thread."""
        with self._change:
            self._stopped = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._waiting:
                    if self._stopped:
                        return
                    self._change.wait()
                turn = self._turn()
            self._answer(turn)

    def _turn(self) -> list[tuple[Waiting, Sequence[Example]]]:
        """Take the next questions of each request; unfinished requests go to the end of the queue."""
        turn, size = list[tuple[Waiting, Sequence[Example]]](), 0
        share = AT_ONCE if len(self._waiting) == 1 else SHARE
        for _ in range(len(self._waiting)):
            if size >= AT_ONCE:
                break
            one = self._waiting.popleft()
            done = len(one.answers)
            if one.future.cancelled():  # the client went away
                self.n_queued -= len(one.questions)
                continue
            part = one.questions[done : done + min(share, AT_ONCE - size)]
            turn.append((one, part))
            size += len(part)
        return turn

    def _answer(self, turn: list[tuple[Waiting, Sequence[Example]]]) -> None:
        current = self._current()
        groups: dict[object, list[tuple[Waiting, Sequence[Example]]]] = {}
        for one, part in turn:
            one.version = one.version or current
            groups.setdefault((id(one.version), one.top, one.least), []).append((one, part))
        finished: dict[int, tuple[Waiting, Exception | None]] = {}
        for group in groups.values():
            fault: Exception | None = None
            try:
                first, asked = group[0][0], [question for _, part in group for question in part]
                found = iter((first.version or current).predict(asked, top=first.top, min_confidence=first.least))
                for one, part in group:
                    one.answers += [next(found) for _ in part]
            except Exception as error:
                fault = error
            done = (one for one, _ in group if fault or len(one.answers) == len(one.questions))
            finished |= {id(one): (one, fault) for one in done}
        with self._change:
            self.n_queued -= sum(len(one.questions) for one, _ in finished.values())
            self._waiting.extend(one for one, _ in turn if id(one) not in finished)
        for loop in {one.loop for one, _ in finished.values()}:
            own = [(one, fault) for one, fault in finished.values() if one.loop is loop]
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_resolve, own)


def _resolve(finished: list[tuple[Waiting, Exception | None]]) -> None:
    for one, fault in finished:
        if one.future.done():  # cancelled meanwhile
            continue
        if fault is not None:
            one.future.set_exception(fault)
        else:
            assert one.version is not None
            one.future.set_result(Answered(one.version, tuple(one.answers)))
