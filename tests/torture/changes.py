"""Changes of an extractor: killed at every step of their work, and two at once.

A kill at a random moment seldom hits a removal or the last rename. Here the process kills itself at the n-th change of
the file system.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import toys
from processes import Call, Child, ask
from trial import CLEAR, HERE, Case, Trial, Verdict, content_of, differing, leftovers, unclear

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")  # besides opening a file to write
SLOW = 0.03  # seconds for each change of the first of two commands
STEPS = "steps.txt"  # number of changes of the whole command
STORE = ("--store", "store")
COPIES = ("store", "tiny", "labelled.jsonl", "data.jsonl", "sources")
REVIEW = ("review", "reviewed.txt", *STORE)
TEXT = "Ada the sign1 was Bob .\nEve of sign4 in Fay .\nCarl the sign2 Dora .\nAda who sign3 Eve .\n"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and the lines that it reads from standard input."""

    words: tuple[str, ...]
    said: str = ""

    def call(self, watch: Callable[[], object] = lambda: None) -> Call:
        """The call of the command; `watch` is called before each change of the file system."""

        def run() -> None:
            from erda.cli.main import main

            def hook(event: str, given: tuple[object, ...]) -> None:
                flags = given[2] if event == "open" else 0
                if event in CHANGES or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
                    watch()

            sys.stdin, sys.argv = io.StringIO(self.said), ["erda", *self.words]
            sys.addaudithook(hook)
            sys.exit(main(list(self.words)))

        return run


EDITS = tuple(
    Command((*words, *STORE))
    for words in (
        ("edit", "r1", "--name", "other"),
        ("edit", "r1", "--into", "r2"),
        ("edit", "r1", "--description", "a sign"),
        ("edit", "r1", "--types", "PERSON", "ORG"),
        ("tune", "labelled.jsonl", "--precision", "0.1"),
        ("teach", "r1", "[[eve]] who is {{carl}}", "--not"),
        ("teach", "r1", "[[eve]] who is {{carl}}"),
        ("teach", "R_1 again", "[[eve]] is who {{carl}}"),
        ("forget", "r1"),
        ("versions", "--undo"),
        ("versions", "--keep", "1"),
        ("versions", "--purge"),
    )
)
OUTPUTS = (
    Command(("predict", "data.jsonl", *STORE, "--out", "answers.csv")),
    Command(("review", "--list", "--relation", "r1", "--text", "sources/text.txt", *STORE, "--out", "found.jsonl")),
    Command(("data", "convert", "data.jsonl", "--out", "copy.csv")),
    Command(("export", "exported", *STORE)),
)


def change_trials(case_toys: Path, folder: Path) -> list[Trial]:
    """Kills at every step of a change, of an output and of a review; two changes at once."""
    commands = (*EDITS, *OUTPUTS)
    ends = [
        _ends(command, case_toys, folder / "twin of a change" / str(place)) for place, command in enumerate(commands)
    ]

    def killed(case: Case, number: int) -> Verdict:
        place = number % len(commands)
        return _killed(case, commands[place], *ends[place])

    return [
        Trial("kills at every step", 600, killed),
        Trial("kills at every step of a review", 80, _killed_review),
        Trial("two changes at once", 100, _two_changes),
    ]


def _prepare(case_toys: Path, here: Path) -> None:
    toys.copy(case_toys, COPIES, here)
    (here / "reviewed.txt").write_text(TEXT)
    (here / "notes.txt").write_text(toys.NOTES)


def _ends(command: Command, case_toys: Path, folder: Path) -> tuple[int, list[dict[str, str]]]:
    """The number of changes of a command, and its result after one run and after two."""
    here, contents = folder / HERE, []
    _prepare(case_toys, here)
    tally = os.open(folder / STEPS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    answer = ask(command.call(lambda: os.write(tally, b".")), here)
    os.close(tally)
    if answer.status:
        raise SystemExit(f"{command.words}: the uninterrupted twin failed.\n{answer.said}")
    contents.append(content_of(here))
    ask(command.call(), here)
    contents.append(content_of(here))
    return (folder / STEPS).stat().st_size, contents


def _killer(step: int) -> Callable[[], None]:
    steps = itertools.count()

    def watch() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def _killed(case: Case, command: Command, n_steps: int, ends: Sequence[dict[str, str]]) -> Verdict:
    """After a kill the same command ends as one run or as two, and leaves nothing behind."""
    _prepare(case.toys, case.folder)
    step = case.rng.randrange(n_steps)
    what = f"{' '.join(command.words[:2])}, step {step} of {n_steps}"
    ask(command.call(_killer(step)), case.folder)
    answer = ask(command.call(), case.folder)
    case.folder.with_name("said.txt").write_text(answer.said, errors="backslashreplace")
    if verdict := unclear(answer):
        return Verdict(verdict.kind, f"{what}: {verdict.why}")
    now = content_of(case.folder)
    wrong = [differing(now, end) for end in ends]
    if all(wrong):
        return Verdict("silent", f"{what}: another result: {min(wrong, key=len)[0]}: {answer.err[-200:]}")
    if left := leftovers(case.folder):
        return Verdict("lost", f"{what}: left behind: {left[0]}")
    return CLEAR


def _killed_review(case: Case, number: int) -> Verdict:
    """Every judgement whose pair is not shown again is part of the extractor."""
    _prepare(case.toys, case.folder)
    before = json.loads(ask(_summary, case.folder).out)
    step = case.rng.randrange(120)
    ask(Command(REVIEW, "y\nn\ny\nu\nn\nq\n").call(_killer(step)), case.folder)
    answer = ask(Command(REVIEW, "q\n").call(), case.folder)
    if verdict := unclear(answer):
        return Verdict(verdict.kind, f"review, step {step}: {verdict.why}")
    if answer.status:
        return Verdict("lost", f"review, step {step}: {answer.err[-200:]}")
    after, n_said = json.loads(ask(_summary, case.folder).out), _n_said(case.folder)
    n_new = sum(map(_n_sentences, after["relations"].values())) - sum(map(_n_sentences, before["relations"].values()))
    if not n_said <= n_new <= n_said + 1:  # a kill after the judgement, before the line that it was shown
        return Verdict("lost", f"review, step {step}: {n_said} judgements, {n_new} new sentences")
    if left := leftovers(case.folder):
        return Verdict("lost", f"review, step {step}: left behind: {left[0]}")
    return CLEAR


def _n_sentences(relation: dict[str, list[str]]) -> int:
    return len(relation["examples"]) + len(relation["counterexamples"])


def _n_said(folder: Path) -> int:
    """Number of judgements in the journal of reviews that were not undone; a line cut by a kill does not count."""
    said, journal = {}, folder / "store/reviews/shown.jsonl"
    for line in journal.read_text().splitlines() if journal.exists() else ():
        with suppress(ValueError):
            pair, _, decision = json.loads(line)
            said[pair] = decision
    return sum(decision in ("yes", "no", "other") for decision in said.values())


def _two_changes(case: Case, number: int) -> Verdict:
    """Two changes at once end as one after the other, in either order."""
    pair = case.rng.sample(EDITS, 2)
    found = []
    for place, order in enumerate((pair, pair[::-1])):
        here = case.folder / str(place) / HERE
        _prepare(case.toys, here)
        status = {command: ask(command.call(), here).status for command in order}
        found.append(([status[command] for command in pair], ask(_summary, here).out))
    here = case.folder / "both" / HERE
    _prepare(case.toys, here)
    slow, delay = pair[0].call(lambda: time.sleep(SLOW)), case.rng.uniform(0, 0.3)  # holds the lock for longer
    children = [Child(slow, here)]
    time.sleep(delay)
    children.append(Child(pair[1].call(), here))
    answers = [child.wait() for child in children]
    what = " and ".join(" ".join(command.words[:2]) for command in pair)
    for answer in answers:
        if verdict := unclear(answer):
            return Verdict(verdict.kind, f"{what}: {verdict.why}")
    now = [answer.status for answer in answers], ask(_summary, here).out
    if now not in found:
        said = "; ".join(answer.err.strip() for answer in answers)
        return Verdict("silent", f"{what}: statuses {now[0]}, neither order gives this: {said} {now[1]}")
    return CLEAR


def _summary() -> None:
    """Print everything that the current version was taught."""
    from erda.app.extractor import Extractor

    state = Extractor.open("store").version.state
    relations = {
        one.id: {
            "about": [one.relation.name, one.relation.description, one.head_types],
            "examples": sorted(str(own.example) for own in one.lessons),
            "counterexamples": sorted(str(own.example) for own in one.counterexamples),
        }
        for one in state.known
    }
    overall = round(state.thresholds.overall, 6) if state.thresholds else None
    print(json.dumps({"relations": relations, "threshold": overall}, sort_keys=True))
