"""Generated damage to every kind of input file: the answer equals the undamaged twin's, or is a clear error."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import toys
from mutations import damage
from processes import Call, Child, ask
from trial import CLEAR, HERE, Case, Trial, Verdict, content_of, differing, leftovers, plain, unclear

_UNFINISHED = re.compile(r"/(checkpoints|build|cache)/")
NOTE = "damaged.txt"  # names the damaged file of a failing case
Make = Callable[[str], Call]  # path of the damaged file -> call


@dataclass(frozen=True, slots=True)
class Question:
    """A call that reads some files. `ends` are the outputs to compare; without any, its printed output is compared.

    `free`: the files are the user's own, so there is no reference, and any clear answer is right.
    """

    name: str
    copies: tuple[str, ...]
    damaged: tuple[str, ...]  # patterns of the files to damage
    call: Call | Make
    weight: int
    ends: tuple[str, ...] = ()
    free: bool = False


@dataclass(slots=True)
class Twins:
    """The result of each question on undamaged files."""

    out: dict[str, str] = field(default_factory=dict)
    content: dict[str, dict[str, str]] = field(default_factory=dict)


def ask_saved(path: str) -> Call:
    """Load a method and predict."""

    def call() -> None:
        from erda.data.own_data import read_examples
        from erda.methods.base import Method

        method = Method.load(Path("run/erda/100/method"))
        print(method.predict(read_examples(Path("data.jsonl")).examples).scores.round(4).tolist())

    return call


def ask_settings(path: str) -> Call:
    """Read settings as `erda run --config` does."""

    def call() -> None:
        from erda.cli.settings_options import add_settings, load_settings

        parser = argparse.ArgumentParser(prog="erda")
        add_settings(parser)
        for run in load_settings(parser.parse_args(["--config", path])).runs():
            print(run.title)

    return call


def ask_store(path: str) -> Call:
    """Ask an extractor, and list its relations and examples."""

    def call() -> None:
        from erda.app.extractor import Extractor

        extractor = Extractor.open("store")
        for answer in extractor.predict(["[[ada]] the sign1 was {{bob}}", "{{eve}} of sign4 in [[fay]]"]):
            print(answer.to_json())
        for relation in extractor.relations:
            lessons = (*extractor.examples(relation.id), *extractor.counterexamples(relation.id))
            print(relation, [lesson.example for lesson in lessons])

    return call


def ask_build(path: str) -> Call:
    """Build a corpus from one source, plain text with the list of names beside it."""
    text = path.endswith((".txt", ".tsv"))
    source = "sources/text.txt" if text else path
    return ["corpus", "build", source, "--out", "new", *(["--names", "sources/names.txt"] if text else [])]


CORPUS = ("corpus", "adapter", "tiny", "data.jsonl", "rows.jsonl")
STORE = ("corpus/*.*",)
VECTORS = ("corpus/vectors/*/*",)
TRAINED = ("tiny", "rows.jsonl")
INPUT = ("data.jsonl", "vectors.txt")
METHOD = ("run/erda/100/method", *INPUT)
EXTRA = ("extra.jsonl",)
REPORT = ["report", "run", "--no-figures"]

QUESTIONS = (
    Question("saved method", METHOD, ("run/**/method/*",), ask_saved, 16),
    Question("word vectors of a method", METHOD, ("vectors.txt",), ask_saved, 2),
    Question("records, reported", ("run", *INPUT), ("run/*/*/*.*",), REPORT, 10),
    Question("records, run again", ("run", *INPUT), ("run/*/*/*.*",), toys.RUN, 6, ends=("run",)),
    Question("corpus, counted", CORPUS, STORE, ["corpus", "build", "--out", "corpus"], 14),
    Question("corpus, augmented", CORPUS, (*STORE, *VECTORS), toys.AUGMENT, 10, ends=EXTRA),
    Question("corpus, built again", CORPUS, STORE, toys.BUILD, 6, ends=("corpus",)),
    Question("corpus, indexed again", CORPUS, (*STORE, *VECTORS), toys.INDEX, 6, ends=("corpus",)),
    Question(
        "unfinished build", ("stopped/build/corpus", *CORPUS[3:]), ("corpus/**/*",), toys.BUILD, 8, ends=("corpus",)
    ),
    Question("unfinished index", ("stopped/index/corpus", *CORPUS[1:]), VECTORS, toys.INDEX, 6, ends=("corpus",)),
    Question("similarity model", CORPUS, ("adapter/*",), toys.AUGMENT, 6, ends=EXTRA),
    Question("its pretrained model", CORPUS, ("tiny/*",), toys.AUGMENT, 4, ends=EXTRA),
    Question("unfinished training", ("stopped/adapter", *TRAINED), ("adapter/**/*",), toys.TRAIN, 2, ends=("adapter",)),
    Question("cache of frozen layers", ("tiny", "cache", *INPUT), ("cache/**/*",), toys.FROZEN, 4, ends=("far",)),
    Question("pretrained model", ("tiny", *INPUT), ("tiny/*",), toys.FROZEN, 4, free=True),
    Question("extractor", ("store", "tiny"), ("store/**/*.*",), ask_store, 14),
    Question("extractor, its encoder", ("store", "tiny"), ("tiny/*",), ask_store, 4),
    Question("settings file", ("settings.toml", *INPUT), ("settings.toml",), ask_settings, 14, free=True),
    Question("dataset", ("formats",), ("formats/*",), lambda path: ["data", "convert", path], 18, free=True),
    Question("source of a corpus", ("sources", "rows.jsonl"), ("sources/*", "rows.jsonl"), ask_build, 10, free=True),
    Question("pairs to train on", TRAINED, ("rows.jsonl",), toys.TRAIN, 1, free=True),
)


def damage_trial(folder: Path, work: Path) -> Trial:
    """10,000 damaged files; the toys are in `folder`."""
    stop_some(folder)
    twins = Twins()
    for question in QUESTIONS:
        here = work / f"twin of {question.name}" / HERE
        toys.copy(folder, question.copies, here)
        answer = ask(_call(question, _files(question, here)[0]), here, patience=600)
        if answer.status and not question.free:
            raise SystemExit(f"{question.name}: the undamaged twin failed.\n{answer.said}")
        twins.out[question.name] = plain(answer.out)
        twins.content[question.name] = content_of(*(here / name for name in question.ends))
        shutil.rmtree(here.parent)
    turns = [question for question in QUESTIONS for _ in range(question.weight)]
    whole = "method.safetensors"  # a saved method is one file: another one in its place is no damage
    others = [path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file() and path.name != whole]

    def run(case: Case, number: int) -> Verdict:
        question = turns[number * 61 % len(turns)]  # 61: every kind early on, whatever the number of cases
        return _try(case, question, twins, others)

    return Trial("damage", 10_000, run)


def _try(case: Case, question: Question, twins: Twins, others: list[bytes]) -> Verdict:
    path = _damaged_file(case, question, others)
    is_folder, damaged = path.is_dir(), path.read_bytes() if path.is_file() else None
    verdict = _judged(case, question, twins, path)
    if verdict.kind != "clear" and not case.given:
        _keep_input(case, question, path, damaged, is_folder=is_folder)
    return verdict


def _judged(case: Case, question: Question, twins: Twins, path: Path) -> Verdict:
    (case.folder / "notes.txt").write_text(toys.NOTES)
    before = content_of(case.folder)
    answer = ask(_call(question, path), case.folder)
    case.folder.with_name("said.txt").write_text(answer.said, errors="backslashreplace")
    what, name = f"{question.name}: {path.name}", str(path.relative_to(case.folder))
    if verdict := unclear(answer):
        return Verdict(verdict.kind, f"{what}: {verdict.why}")
    now = content_of(case.folder)
    own = tuple(f"{HERE}/{end}" for end in question.ends if answer.status == 0)  # which the command may write
    gone = [one for one in differing(now, before) if one in before and one != f"{HERE}/{name}"]
    gone = [one for one in gone if not _UNFINISHED.search(one) and not one.startswith(own)]
    if gone:
        return Verdict("lost", f"{what}: changed or removed {gone[0]} (exit status {answer.status})")
    said_so = path.name in answer.err or f"{Path(name).parent}: " in answer.err
    if answer.status or question.free or said_so:
        return CLEAR
    if not question.ends:
        wrong = "" if plain(answer.out) == twins.out[question.name] else "another answer"
    else:
        kept = now.get(f"{HERE}/{name}") == before.get(f"{HERE}/{name}")  # not touched: whoever reads it will say so
        wrong = _wrong_end(case.folder, question, twins, name if kept else "")
    return Verdict("silent", f"{what}: {wrong}") if wrong else CLEAR


def _wrong_end(folder: Path, question: Question, twins: Twins, but_for: str) -> str:
    """In what the end differs from the undamaged twin's; "" where it does not."""
    now = content_of(*(folder / end for end in question.ends))
    if wrong := [one for one in differing(now, twins.content[question.name]) if one != but_for]:
        return f"another result: {wrong[0]}"
    left = [f"{end}/{one}" for end in question.ends for one in leftovers(folder / end)]
    return next((f"left behind: {one}" for one in left if one != but_for), "")


def _damaged_file(case: Case, question: Question, others: list[bytes]) -> Path:
    """Put the input of a case in its place; the file that is damaged."""
    if case.given:
        shutil.copytree(case.given, case.folder, dirs_exist_ok=True)
        return case.folder / (case.given.parent / NOTE).read_text()
    toys.copy(case.toys, question.copies, case.folder)
    path = case.rng.choice(_files(question, case.folder))
    _damage(path, case, others)
    return path


def _keep_input(case: Case, question: Question, path: Path, damaged: bytes | None, *, is_folder: bool) -> None:
    """Write the input of a failing case beside it, for `--replay`."""
    given = case.folder.with_name("input")
    toys.copy(case.toys, question.copies, given)
    name = path.relative_to(case.folder)
    (given / name).unlink()
    if is_folder:
        (given / name).mkdir()
    elif damaged is not None:
        (given / name).write_bytes(damaged)
    case.folder.with_name(NOTE).write_text(str(name))


def _damage(path: Path, case: Case, others: list[bytes]) -> None:
    way = case.rng.random()
    content = path.read_bytes()
    path.unlink()
    if way < 0.01:
        path.mkdir()
    elif way > 0.03:
        path.write_bytes(damage(content, path.name, case.rng, others))


def _files(question: Question, folder: Path) -> list[Path]:
    found = {path for pattern in question.damaged for path in folder.glob(pattern) if path.is_file()}
    if not found:
        raise SystemExit(f"{question.name}: nothing to damage in {[*folder.rglob('*')]}.")
    return sorted(found)


def _call(question: Question, path: Path) -> Call:
    if not callable(question.call):
        return question.call
    here = next(parent for parent in path.parents if parent.name == HERE)
    made = question.call(str(path.relative_to(here)))  # type: ignore[call-arg]
    assert made is not None
    return made


# -- what interrupted commands leave behind ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """A command that is stopped once `begun` is there and before `finished` is; `end` is what it leaves behind."""

    name: str
    call: list[str]
    copies: tuple[str, ...]
    end: str
    begun: str
    finished: str


STOPS = (
    Stop("build/corpus", toys.BUILD, CORPUS[3:], "corpus", "corpus/build/*/rows-*", "corpus/corpus.json"),
    Stop("index/corpus", toys.INDEX, CORPUS, "corpus", "corpus/vectors/*/shard*", "corpus/vectors/*/index.json"),
    Stop("adapter", toys.TRAIN, TRAINED, "adapter", "adapter/checkpoints/checkpoint.npz", "adapter/*.safetensors"),
)


def stop_some(folder: Path) -> None:
    """Stop commands in their midst, and keep what they leave behind as toys."""
    here = folder / "stopping" / HERE
    for stop in STOPS:
        for _ in range(50):
            shutil.rmtree(here.parent, ignore_errors=True)
            toys.copy(folder, stop.copies, here)
            shutil.rmtree(here / "corpus/vectors", ignore_errors=True)
            child = Child(stop.call, here)
            while child.alive and not _is_there(here, stop.begun):
                pass
            child.kill()
            if _is_there(here, stop.begun) and not _is_there(here, stop.finished):
                break
        else:
            raise SystemExit(f"{stop.name}: could not be stopped in its midst.")
        target = folder / "stopped" / stop.name
        target.parent.mkdir(parents=True, exist_ok=True)
        (here / stop.end).rename(target)
    shutil.rmtree(here.parent)


def _is_there(folder: Path, pattern: str) -> bool:
    with suppress(FileNotFoundError):  # a folder that is removed at this moment
        return any(folder.glob(pattern))
    return False
