"""Files of the user wherever a command writes: they stay unchanged, and no input is overwritten."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import toys
from processes import ask
from trial import CLEAR, Case, Trial, Verdict, numbered, unclear


@dataclass(frozen=True, slots=True)
class Writing:
    """A command and the path that it writes to; `inputs` are the files that it reads."""

    name: str
    call: tuple[str, ...]
    out: str
    inputs: tuple[str, ...] = ()


STORE = ("--store", "store")
NAMES = ("--names", "sources/names.txt")
WRITINGS = (
    Writing("predict", ("predict", "data.jsonl", *STORE, "--out", "a.csv"), "a.csv", ("data.jsonl",)),
    Writing(
        "extract",
        ("extract", "sources/text.txt", *NAMES, *STORE, "--out", "a.jsonl"),
        "a.jsonl",
        ("sources/text.txt", "sources/names.txt"),
    ),
    Writing(
        "list",
        ("review", "--list", "--relation", "r0", "--text", "texts.jsonl", *STORE, "--overwrite", "--out", "a.jsonl"),
        "a.jsonl",
        ("texts.jsonl",),
    ),
    Writing(
        "augment",
        (*toys.AUGMENT[:-2], "--known", "labelled.jsonl", "--overwrite", "--out", "a.jsonl"),
        "a.jsonl",
        ("data.jsonl", "labelled.jsonl"),
    ),
    Writing("convert", ("data", "convert", "data.jsonl", "--out", "a.csv"), "a.csv", ("data.jsonl",)),
    Writing("export", ("export", "a", *STORE), "a"),
    Writing("teach", ("teach", "r9", "[[ada]] met {{bob}}", *STORE), "store"),
    Writing("reject", ("teach", "r0", "[[ada]] met {{bob}}", "--not", *STORE), "store"),
    Writing("tune", ("tune", "labelled.jsonl", "--precision", "0.1", *STORE), "store"),
    Writing("prune", ("versions", "--keep", "0", *STORE), "store"),
    Writing("purge", ("versions", "--purge", *STORE), "store"),
    Writing("undo", ("versions", "--undo", *STORE), "store"),
    Writing("build", tuple(toys.BUILD), "corpus"),
)
BESIDE = ("{out}.partial", ".{out}.part", ".{out}.tmp", ".{out}.0.tmp")
INSIDE = (
    *("notes.txt", "objects/notes.txt", "versions/README.md", "versions/9.json", "versions/sub/notes.txt", ".lock"),
    *("objects", "versions", "build/notes.txt"),
)
WAYS = ("file", "folder", "link to a file", "link to a folder")
COPIES = ("data.jsonl", "labelled.jsonl", "rows.jsonl", "sources", "store", "tiny")


def ownership_trials(case_toys: Path, folder: Path) -> list[Trial]:
    """Files of the user where a command writes, outputs that are inputs, first teachings that fail."""
    return [
        Trial("files of the user", 400, _foreign),
        Trial("outputs that are inputs", 100, _input_as_output),
        Trial("first teachings that fail", 40, _failing_start),
    ]


def _foreign(case: Case, number: int) -> Verdict:
    """Place files where the command writes; afterwards they must be unchanged."""
    writing = WRITINGS[number % len(WRITINGS)]
    _prepare(case, writing)
    victim = case.folder.with_name("victim")
    victim.mkdir()
    (victim / "notes.txt").write_text(toys.NOTES)
    (victim / f"{'0' * 64}.json").write_text(toys.NOTES)
    places = [one.format(out=writing.out) for one in BESIDE]
    places += [f"{writing.out}/{one}" for one in INSIDE if "." not in writing.out]
    planted = [_plant(case.folder / one, case, victim) for one in case.rng.sample(places, case.rng.randint(1, 3))]
    before = {path: _what_is(path) for top in (*planted, victim) if top for path in (top, *top.rglob("*"))}
    verdict = _asked(case, writing.call, writing.name)
    gone = [path for path, was in before.items() if _what_is(path) != was]
    return Verdict("lost", f"{writing.name}: {gone[0].relative_to(case.folder.parent)}") if gone else verdict


def _prepare(case: Case, writing: Writing) -> None:
    toys.copy(case.toys, (*COPIES, *(("corpus", "adapter") if "adapter" in writing.call else ())), case.folder)
    toys.write_lines(case.folder / "texts.jsonl", [{"text": "Ada met Bob in the City ."}])


def _plant(path: Path, case: Case, victim: Path) -> Path | None:
    """Place a file of the user's at a path that is free or an empty folder."""
    way = case.rng.choice(WAYS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            if way != "link to a folder":
                return None
            shutil.move(path, victim / "moved")  # the folder itself moves
            path.symlink_to(victim / "moved")
        elif way == "folder":
            path.mkdir()
            (path / "notes.txt").write_text(toys.NOTES)
        elif way == "file":
            path.write_text(toys.NOTES)
        else:
            path.symlink_to(victim if way == "link to a folder" else victim / "notes.txt")
    except OSError:  # two in one place
        return None
    return path


def _what_is(path: Path) -> object:
    if path.is_symlink():
        return "link", path.readlink()
    return path.read_bytes() if path.is_file() else path.is_dir()


def _input_as_output(case: Case, number: int) -> Verdict:
    """Name an input as the output, by a path or a link: the command must refuse."""
    writings = [one for one in WRITINGS if one.inputs]
    writing = writings[number % len(writings)]
    _prepare(case, writing)
    given = case.folder / case.rng.choice(writing.inputs)
    alias = given.with_name(f"alias{Path(writing.out).suffix}")  # the suffix that the command requires
    given.rename(alias)
    given.symlink_to(alias.name)
    out = alias
    if (way := case.rng.choice(["itself", "dots", "symbolic link", "hard link"])) == "dots":
        out = alias.parent / ".." / alias.parent.name / alias.name
    elif way != "itself":
        out = case.folder / f"other{alias.suffix}"
        out.symlink_to(alias) if way == "symbolic link" else out.hardlink_to(alias)
    before = alias.read_bytes()
    call = [*writing.call[:-1], str(out)]
    verdict = _asked(case, call, f"{writing.name}, {way}")
    if alias.read_bytes() != before or not out.exists():
        return Verdict("lost", f"{writing.name} over its input ({way})")
    return verdict


def _failing_start(case: Case, number: int) -> Verdict:
    """A first teaching that fails leaves no folder."""
    toys.copy(case.toys, ("tiny",), case.folder)
    faults = (["--method", "nothing"], ["--encoder", "nowhere"], ["--method", "erda", "--encoder", "nowhere"])
    sentence = numbered(["[[ada]] met {{bob}}", "[[ada]] met", "\0", ""], number // len(faults))
    call = ["teach", "r", sentence, "--store", "above/new", *faults[number % len(faults)]]
    verdict = _asked(case, call, "first teaching")
    left = case.folder / "above"
    return Verdict("lost", f"{' '.join(call)}: left a folder behind") if left.exists() else verdict


def _asked(case: Case, call: tuple[str, ...] | list[str], what: str) -> Verdict:
    answer = ask(list(call), case.folder)
    case.folder.with_name("said.txt").write_text(answer.said, errors="backslashreplace")
    verdict = unclear(answer)
    return Verdict(verdict.kind, f"{what}: {verdict.why}") if verdict else CLEAR
