"""Full disks, and several processes at once in one folder."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import toys
from kills import WORKS, Work, finished, prepare, twin_of
from processes import Child, ask
from trial import CLEAR, Case, Trial, Verdict, numbered, unclear

PATIENT = 10  # seconds that a teacher waits for others
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACE, _PRIVATE, _REMOUNT = 0x00020000, 1 << 18 | 1 << 14, 1 << 5


def sharing_trials(case_toys: Path, folder: Path) -> list[Trial]:
    """Trials of a full disk and of two processes at once, in turn for each command."""
    twins = {work.name: twin_of(work, case_toys, folder)[0] for work in WORKS}
    works = {work.name: work for work in WORKS}

    def in_turn(run: Callable[[Case, Work, dict[str, str]], Verdict]) -> Callable[[Case, int], Verdict]:
        def one(case: Case, number: int) -> Verdict:
            name = numbered(list(works), number)
            return run(case, works[name], twins[name])

        return one

    return [
        Trial("disk is full", 500, in_turn(_full_disk)),
        Trial("two at once", 200, in_turn(_two_at_once)),
        Trial("many teachers", 60, _many_teachers),
    ]


def _full_disk(case: Case, work: Work, twin: dict[str, str]) -> Verdict:
    """Fill a small file system, or limit the size of files; then make room and run again."""
    small = _mount(case.folder)
    prepare(work, case.toys, case.folder)
    room, limit = 0, None
    if small:
        room = int(2 ** case.rng.uniform(12, 18))
        used = sum(-(-path.stat().st_size // 4096) * 4096 for path in case.folder.rglob("*"))
        _resize(case.folder, used + room)
    else:
        room = limit = int(2 ** case.rng.uniform(4, 15))
    answer = ask(work.call, case.folder, limit=limit)
    case.folder.with_name("said.txt").write_text(answer.said, errors="backslashreplace")
    verdict = unclear(answer)
    if verdict:
        return Verdict(verdict.kind, f"{work.name} with room for {room} bytes: {verdict.why}")
    if answer.status and not any(word in answer.err.lower() for word in ("full", "space", "too large", "cannot write")):
        return Verdict("traceback", f"{work.name} with room for {room} bytes: another reason: {answer.err[-300:]}")
    if small:
        _resize(case.folder, 1 << 30)
    verdict = finished(case, work, twin, what=f"after a full disk ({room} bytes)")
    if verdict.kind != "clear" and small:
        shutil.copytree(case.folder, case.folder.with_name("input"), dirs_exist_ok=True)
    return verdict


def _two_at_once(case: Case, work: Work, twin: dict[str, str]) -> Verdict:
    """Each process succeeds or reports that the other holds the lock; the result is that of one alone."""
    prepare(work, case.toys, case.folder)
    children = [Child(work.call, case.folder) for _ in range(2)]
    for answer in [child.wait() for child in children]:
        if verdict := unclear(answer):
            return Verdict(verdict.kind, f"{work.name}, two at once: {verdict.why}")
    return finished(case, work, twin, what="after two at once")


def _many_teachers(case: Case, number: int) -> Verdict:
    """Three processes teach one store while others list and prune it: none starves, no teaching is lost."""
    toys.copy(case.toys, ("store", "tiny"), case.folder)
    store = ["--store", "store"]
    teachers = [Child(["teach", f"new {i}", f"[[ada]] sign{i} {{{{bob}}}}", *store], case.folder) for i in range(3)]
    others = [Child([*call, *store], case.folder) for call in (["versions"], ["versions", "--keep", "1"], ["versions"])]
    for child, answer in [(child, child.wait()) for child in (*teachers, *others)]:
        if verdict := unclear(answer):
            return Verdict(verdict.kind, f"many teachers: {verdict.why}")
        if answer.status and child in teachers and child.seconds < PATIENT:
            return Verdict("lost", f"many teachers: starved after {child.seconds:.0f} s: {answer.err[-200:]}")
        if answer.status and child not in teachers and "another process" not in answer.err:
            return Verdict("traceback", f"many teachers: {answer.err[-300:]}")
    answer = ask(["relations", *store], case.folder)
    lost = [f"new {i}" for i, child in enumerate(teachers) if not child.status and f"new {i}" not in answer.out]
    return Verdict("lost", f"many teachers: {lost[0]} was taught and is gone") if lost else unclear(answer) or CLEAR


def _mount(folder: Path) -> bool:
    """Mount a separate file system at `folder` for this process; False where it cannot be mounted and resized."""
    if os.geteuid() or _LIBC.unshare(_NEW_NAMESPACE) or _LIBC.mount(b"none", b"/", None, _PRIVATE, None):
        return False
    options = f"size={1 << 30}".encode()
    return not any(_LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", flags, options) for flags in (0, _REMOUNT))


def _resize(folder: Path, size: int) -> None:
    if _LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", _REMOUNT, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), f"{folder} could not be made {size} bytes large")
