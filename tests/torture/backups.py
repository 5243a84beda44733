"""Backups of a store restored under a running process: nothing is overwritten, and reported versions exist."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import toys
from processes import Call, ask
from trial import CLEAR, Case, Trial, Verdict, unclear

WAYS = ("all", "over it", "head", "versions", "objects", "one version", "swapped")


def backup_trial(case_toys: Path, folder: Path) -> Trial:
    """Trial that restores a copy over the store in seven ways."""
    return Trial("backups put back", 200, _try)


def _try(case: Case, number: int) -> Verdict:
    toys.copy(case.toys, ("store", "tiny"), case.folder)
    way, seed = WAYS[number % len(WAYS)], case.rng.random()
    answer = ask(_live(way, seed), case.folder)
    case.folder.with_name("said.txt").write_text(answer.said, errors="backslashreplace")
    if verdict := unclear(answer):
        return Verdict(verdict.kind, f"{way}: {verdict.why}")
    if answer.status:
        return CLEAR
    claimed = json.loads(answer.out.splitlines()[-1])
    if claimed["overwritten"]:
        return Verdict("lost", f"{way}: overwrote {claimed['overwritten'][0]}")
    again = ask(_relations, case.folder)
    if unclear(again) or again.status:
        return Verdict("lost", f"{way}: taught, but does not open: {again.err[-300:]}")
    if json.loads(again.out) != claimed["relations"]:
        return Verdict("silent", f"{way}: claimed {claimed['relations']}, has {again.out}")
    return CLEAR


def _relations() -> None:
    from erda.app.extractor import Extractor

    extractor = Extractor.open("store")
    extractor.predict(["[[ada]] met {{bob}}"])
    print(json.dumps(sorted(one.id for one in extractor.relations)))


def _live(way: str, seed: float) -> Call:
    """Teach, restore a copy, let another process (here: another object) teach or not, teach again."""

    def call() -> None:
        from erda.app.extractor import Extractor

        rng, store = random.Random(seed), Path("store")
        extractor = Extractor.open(store)
        for step in range(3):
            shutil.copytree(store, f"copy{step}")
            extractor.teach(f"new {step}", [f"[[ada]] the sign{step} {{{{bob}}}}"])
        _put_back(store, Path(f"copy{rng.randrange(3)}"), way, rng)
        if rng.random() < 0.5:
            Extractor.open(store).teach("theirs", ["[[eve]] of sign5 {{fay}}"])
        before = {path.name: path.read_bytes() for path in (store / "versions").glob("*.json")}
        if rng.random() < 0.5:
            extractor.refresh()
        extractor.teach("mine", ["[[eve]] who sign4 {{carl}}"])
        now = {name: (store / "versions" / name).read_bytes() for name in before}
        overwritten = [name for name in before if now[name] != before[name]]
        relations = sorted(one.id for one in extractor.relations)
        print(json.dumps({"relations": relations, "overwritten": overwritten}))

    return call


def _put_back(store: Path, copy: Path, way: str, rng: random.Random) -> None:
    if way == "all":
        shutil.rmtree(store)
        shutil.copytree(copy, store)
    elif way == "over it":
        shutil.copytree(copy, store, dirs_exist_ok=True)
    elif way == "head":
        shutil.copy(copy / "extractor.json", store / "extractor.json")
    elif way in ("versions", "objects"):
        shutil.rmtree(store / way)
        shutil.copytree(copy / way, store / way)
    else:
        found = sorted((store / "versions").glob("*.json"))
        one, two = rng.sample(found, 2)
        content = one.read_bytes()
        one.write_bytes(two.read_bytes())
        if way == "swapped":
            two.write_bytes(content)
