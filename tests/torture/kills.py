"""SIGKILL at random moments: the same command, run again, gives the uninterrupted result and leaves no leftovers."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import toys
from processes import Call, Child, ask
from trial import CLEAR, HERE, Case, Trial, Verdict, content_of, differing, leftovers, unclear

AGAIN = 0.3  # probability of a further kill


@dataclass(frozen=True, slots=True)
class Work:
    """A command to kill, and its inputs; `get_ready` runs before the clock starts and returns the call."""

    name: str
    call: Call
    copies: tuple[str, ...]
    without: str = ""  # a subfolder of `copies` to remove
    get_ready: Callable[[], Call] | None = None

    def ready(self, here: Path) -> Call:
        """Prepare and return the call."""
        os.chdir(here)
        return self.get_ready() if self.get_ready else self.call


def save_again() -> None:
    """Save another method over an existing one."""
    ready_to_save()()


def ready_to_save() -> Callable[[], None]:
    """Load the method, so that the call only saves it."""
    from erda.methods.base import Method

    method = Method.load(Path("run/seqrun/100/method"))
    return lambda: method.save(Path("saved"))


def is_whole() -> None:
    """Load the saved method."""
    from erda.methods.base import Method

    print(Method.load(Path("saved")).name)


WORKS = (
    Work("run", toys.RUN, ("data.jsonl", "vectors.txt")),
    Work("build", toys.BUILD, ("data.jsonl", "rows.jsonl")),
    Work("index", toys.INDEX, ("corpus", "adapter", "tiny"), without="corpus/vectors"),
    Work("train", toys.TRAIN, ("rows.jsonl", "tiny")),
    Work(
        "save",
        save_again,
        ("run/seqrun/100/method", "run/erda/100/method", "vectors.txt"),
        get_ready=ready_to_save,
    ),
    Work("teach", toys.TEACH, ("data.jsonl", "tiny")),
    Work("reject", [*toys.REJECT[:2], "{{ada}} of the sign2 [[bob]]", *toys.REJECT[3:]], ("store", "tiny")),
    Work("predict", toys.PREDICT, ("many.jsonl", "store", "tiny")),
)


def prepare(work: Work, case_toys: Path, here: Path) -> None:
    """Copy the inputs of the command, and add a file of the user's beside them."""
    toys.copy(case_toys, work.copies, here)
    if work.without:
        shutil.rmtree(here / work.without)
    if work.name == "save":
        (here / "run/erda/100/method").rename(here / "saved")
    (here / "notes.txt").write_text(toys.NOTES)


def twin_of(work: Work, case_toys: Path, folder: Path) -> tuple[dict[str, str], float]:
    """Result of the uninterrupted command, and its duration in seconds."""
    here = folder / f"twin of {work.name}" / HERE
    prepare(work, case_toys, here)
    call = work.ready(here)
    began = time.monotonic()
    answer = ask(call, here, patience=600)
    seconds = time.monotonic() - began
    if answer.status:
        raise SystemExit(f"{work.name}: the uninterrupted twin failed.\n{answer.said}")
    content = content_of(here)
    os.chdir(folder)
    shutil.rmtree(here.parent)
    return content, seconds


def finished(case: Case, work: Work, twin: dict[str, str], *, what: str) -> Verdict:
    """Run the command again: its result must equal the twin's, without leftovers."""
    answer = ask(work.call, case.folder)
    with case.folder.with_name("said.txt").open("a", errors="backslashreplace") as said:
        said.write(answer.said)
    if verdict := unclear(answer):
        return Verdict(verdict.kind, f"{work.name} {what}: {verdict.why}")
    if answer.status:
        return Verdict("lost", f"{work.name} {what}: cannot run again: {answer.err[-300:]}")
    if wrong := differing(content_of(case.folder), twin):
        return Verdict("silent", f"{work.name} {what}: different result: {wrong[0]}")
    if left := leftovers(case.folder):
        return Verdict("lost", f"{work.name} {what}: left behind: {left[0]}")
    return CLEAR


def kill_trials(case_toys: Path, folder: Path) -> list[Trial]:
    """A trial for each command."""
    return [Trial(f"kills in {work.name}", 200, _killer(work, *twin_of(work, case_toys, folder))) for work in WORKS]


def _killer(work: Work, twin: dict[str, str], seconds: float) -> Callable[[Case, int], Verdict]:
    def run(case: Case, number: int) -> Verdict:
        prepare(work, case.toys, case.folder)
        moments: list[float] = []
        call = work.ready(case.folder)
        while not moments or case.rng.random() < AGAIN:
            child = Child(call, case.folder)
            moments.append(case.rng.uniform(0, seconds))
            time.sleep(moments[-1])
            child.kill()
            if work.name == "save" and (verdict := _unloadable(case)):
                return verdict
        shutil.copytree(case.folder, case.folder.with_name("input"))
        shown = " and ".join(f"{moment:.3f}" for moment in moments)
        return finished(case, work, twin, what=f"killed after {shown} s")

    return run


def _unloadable(case: Case) -> Verdict | None:
    """A killed save must leave the old method or the new one, complete."""
    answer = ask(is_whole, case.folder)
    if answer.status or answer.out.strip() not in ("erda", "seqrun"):
        return Verdict("lost", f"save: neither method can be loaded: {answer.err[-300:]}")
    return None
