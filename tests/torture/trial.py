"""Cases, their verdicts, and the table of results."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Literal

from processes import CRASHED, Answer

Kind = Literal["clear", "traceback", "silent", "lost"]
COLUMNS: dict[Kind, str] = {"clear": "clear", "traceback": "tracebacks", "silent": "silently wrong", "lost": "lost"}
# fields that differ between any two runs of a command, and their digests
LEFT_OUT = {"seconds", "peak_memory_mb", "versions", "seal", "sha256", "machine", "command", "time", "identity"}
NOT_COMPARED = {".lock"}
BATCH = 8  # cases that one process runs in turn: a fork takes as long as many a case
HERE = "here"  # name of the working directory of a case
LEFTOVERS = re.compile(r"\.lock|.*\.tmp|.*\.part|build|checkpoints|.*\.old|.*\.new")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a case, and the reason."""

    kind: Kind
    why: str = ""


CLEAR = Verdict("clear")


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its folder, the toys, and a random generator that depends only on its name and the seed.

    `given` is the recorded input of a replayed case; None for a new case.
    """

    name: str
    folder: Path
    toys: Path
    rng: random.Random
    given: Path | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A kind of trial with `n` cases by default; `run(case, number)` runs one of them."""

    name: str
    n: int
    run: Callable[[Case, int], Verdict]


# -- judging -----------------------------------------------------------------------------------------------------------


def unclear(answer: Answer) -> Verdict | None:
    """The verdict on a traceback, a signal, a hang or an error without a message; None for a clear answer."""
    if answer.status < 0:
        return Verdict("traceback", f"ended by signal {-answer.status}")
    if "Traceback (most recent call last)" in answer.err or answer.status == CRASHED:
        return Verdict("traceback", (answer.err.strip().splitlines() or ["?"])[-1][:300])
    if answer.status not in (0, 2):
        return Verdict("traceback", f"exit status {answer.status}: {answer.err[-300:]}")
    messages = re.findall(r"^erda: .", answer.err, re.M)
    if answer.status == 2 and not messages:
        return Verdict("traceback", f"rejected without a message: {answer.err[-300:]!r}")
    return None


def content_of(*folders: Path) -> dict[str, str]:
    """Digest of every file under some folders, by path; fields that differ between runs are left out of JSON."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.is_file() and path.name not in NOT_COMPARED:
                found[str(path.relative_to(folder.parent))] = _digest(path)
    return found


def _digest(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as fault:  # removed meanwhile, or unreadable
        return type(fault).__name__
    here = next((parent for parent in path.parents if parent.name == HERE), None)
    if here:
        content = content.replace(str(here).encode(), b"")
    return _compared(path.suffix, content)


@lru_cache(maxsize=1024)  # most files of a case are copies of the same toys
def _compared(suffix: str, content: bytes) -> str:
    if suffix == ".json":
        with suppress(ValueError, RecursionError):
            content = json.dumps(_shared(json.loads(content)), sort_keys=True).encode()
    elif suffix == ".safetensors" and len(content) > 8:  # the order of its metadata is not fixed
        size = 8 + int.from_bytes(content[:8], "little")
        content = bytes(sorted(content[8:size])) + content[size:]
    return hashlib.sha256(content).hexdigest()


def _shared(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shared(one) for name, one in value.items() if name not in LEFT_OUT}
    return [_shared(one) for one in value] if isinstance(value, list) else value


def leftovers(folder: Path) -> list[str]:
    """Temporary files that a finished command should have removed."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if LEFTOVERS.fullmatch(path.name)]


def differing(now: dict[str, str], twin: dict[str, str]) -> list[str]:
    """Files that differ from the twin's."""
    return sorted(name for name in {*now, *twin} if now.get(name) != twin.get(name))


def plain(text: str) -> str:
    """Output without durations."""
    return re.sub(r"\d+(\.\d+)? (s|min)\b", "_", text)


# -- running -----------------------------------------------------------------------------------------------------------


class Runner:
    """Runs cases in parallel, and records failures. Whatever a case calls runs in a process of its own."""

    def __init__(self, *, seed: int, toys: Path, work: Path, failures: Path, jobs: int, until: float = inf) -> None:
        self.seed, self.toys, self.work, self.failures, self.jobs = seed, toys, work, failures, jobs
        self.until = until  # by `time.monotonic`; no case starts after it
        self.planned: dict[str, int] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.reasons: Counter[tuple[str, str, str]] = Counter()
        self.seconds: dict[str, float] = {}

    def run(self, trial: Trial, n: int, *, first: int = 0) -> None:
        """Run cases `first` to n - 1; the case of a number depends on the seed alone."""
        counts = self.counts.setdefault(trial.name, Counter())
        self.planned[trial.name] = max(0, n - first)
        began = shown = time.monotonic()
        size = max(1, min(BATCH, (n - first) // self.jobs))
        waiting = iter(range(first, n))
        running: dict[int, list[int]] = {}  # process -> cases
        while True:
            while (
                len(running) < self.jobs and time.monotonic() < self.until and (numbers := list(islice(waiting, size)))
            ):
                running[self._start(trial, numbers)] = numbers
            if not running:
                break
            pid, _ = os.wait()
            for verdict in self._verdicts(trial, running.pop(pid)):
                counts[verdict.kind] += 1
                if verdict.kind != "clear":
                    self.reasons[trial.name, verdict.kind, _short(verdict.why)] += 1
            if time.monotonic() - shown > 20:
                shown = time.monotonic()
                print(f"  {trial.name}: {sum(counts.values())} of {self.planned[trial.name]}", file=sys.stderr)
        self.seconds[trial.name] = time.monotonic() - began

    def replay(self, trial: Trial, number: int, given: Path) -> Verdict:
        """Run one case again on its recorded input."""
        os.waitpid(self._start(trial, [number], given), 0)
        return next(self._verdicts(trial, [number]))

    def _start(self, trial: Trial, numbers: Sequence[int], given: Path | None = None) -> int:
        pid = os.fork()
        if pid:
            return pid
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # only the runner ends with a table
        for number in numbers:
            verdict = self._run_one(trial, number, given) if time.monotonic() < self.until else None
            self._path(trial, number).write_bytes(pickle.dumps(verdict))
            if verdict == CLEAR:  # before the next case needs the space
                shutil.rmtree(self.work / f"{trial.name}-{number}", ignore_errors=True)
        os._exit(0)

    def _run_one(self, trial: Trial, number: int, given: Path | None) -> Verdict:
        name = f"{trial.name}-{number}"
        folder = self.work / name / HERE
        try:
            folder.mkdir(parents=True)
            case = Case(name, folder, self.toys, random.Random(f"{self.seed} {name}"), given)
            return trial.run(case, number)
        except BaseException:
            return Verdict("traceback", f"the trial itself failed: {traceback.format_exc()}")
        finally:
            os.chdir(self.work)

    def _path(self, trial: Trial, number: int) -> Path:
        return self.work / f"{trial.name}-{number}.verdict"

    def _verdicts(self, trial: Trial, numbers: Sequence[int]) -> Iterator[Verdict]:
        """Verdicts of the cases that were tried."""
        for number in numbers:
            try:
                verdict = pickle.loads(self._path(trial, number).read_bytes())
            except (OSError, EOFError, pickle.UnpicklingError):
                verdict = Verdict("traceback", "the process of the trial itself ended")
            if verdict:
                self._record(trial, number, verdict)
                yield verdict

    def _record(self, trial: Trial, number: int, verdict: Verdict) -> None:
        """Keep the folder of a failure, remove that of another case."""
        name = f"{trial.name}-{number}"
        if verdict.kind != "clear" and self.failures:
            folder = self.failures / name
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                shutil.copytree(self.work / name, folder, symlinks=True)
            folder.mkdir(parents=True, exist_ok=True)
            about = {"trial": trial.name, "number": number, "seed": self.seed, "kind": verdict.kind}
            (folder / "case.json").write_text(json.dumps(about))
            (folder / "why.txt").write_text(verdict.why, errors="backslashreplace")
        shutil.rmtree(self.work / name, ignore_errors=True)
        self._path(trial, number).unlink(missing_ok=True)

    # -- results -------------------------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether any case ended in a traceback, a silently wrong result or a loss."""
        return any(counts[kind] for counts in self.counts.values() for kind in COLUMNS if kind != "clear")

    @property
    def n_tried(self) -> int:
        """Number of cases that were tried."""
        return sum(counts.total() for counts in self.counts.values())

    def table(self) -> str:
        """Markdown: a row of counts for each trial, and their sum."""
        rows = [(name, counts, f"{self.seconds.get(name, 0):.0f}") for name, counts in self.counts.items()]
        total = sum(self.counts.values(), Counter())
        rows.append(("all", total, f"{sum(self.seconds.values()):.0f}"))
        head = ["trial", "tried", *COLUMNS.values(), "seconds"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)]]
        lines += [[name, str(counts.total()), *(str(counts[kind]) for kind in COLUMNS), s] for name, counts, s in rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def unfinished(self) -> Iterator[str]:
        """Trials that the time limit cut short."""
        for name, n in self.planned.items():
            if (tried := self.counts[name].total()) < n:
                yield f"{name}: {tried} of {n} cases tried before the time limit"

    def why(self) -> Iterator[str]:
        """Reasons of failures, the most frequent first."""
        for (name, kind, reason), n in self.reasons.most_common():
            yield f"{n:5}  {name}: {COLUMNS[kind]}: {reason}"  # type: ignore[index]


def _short(why: str) -> str:
    first = " ".join(why.split())
    return re.sub(r"\d{3,}", "N", first)[:200]


def numbered(names: Sequence[str], number: int) -> str:
    """The name for a case number; names repeat in turn."""
    return names[number % len(names)]
