"""Hostile names wherever a name can occur: no file leaves its folder, no escape sequence reaches the terminal."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import toys
from processes import Call, ask
from trial import CLEAR, Case, Trial, Verdict, content_of, differing, unclear

FORGED = "forged line of output"
NAMES = (
    *(
        "../../victim",
        "..",
        ".",
        "a/b",
        "/proc/self/victim",
        "~",
        "",
        " ",
        "-rf",
        "--help",
        "nul",
        "x" * 300,
        "x" * 5000,
    ),
    *("=cmd|' /C calc'!A0", "+1+cmd", "-1+cmd", "@SUM(A1)", "\t=1", "a,b", '"a"', "a;b", "a=b", "a.b", "%s{0}$HOME"),
    *(
        "\x1b[2J\x1b]0;x\x07",
        "\x1b[31mred\x1b[0m",
        f"a\n{FORGED}",
        "a\nb",
        "a\r\nb",
        "a\0b",
        "\x7f",
        "\x9b31m",
        "\u202eabc",
        "\u2028",
        "\ufeff",
        "\ud800",
        "\udcff",
    ),
    *("<script>alert(1)</script>", "a|b|c", "[x](javascript:1)", "`a`", "$\\input{x}$", "{{7*7}}", "'; DROP TABLE a;"),
    *("é" * 90, "𝕏", "한국어", "e\u0301", "null", "None", "NaN", "1e999", "erda,erda", "no_relation", "NA"),
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NO_ARGUMENT = re.compile("[\0\ud800-\udc7f]")  # cannot be passed as an argument
_FORMULA = re.compile(r"\s*[=+\-@]")  # a spreadsheet skips the spaces
GIVEN = "given.csv"  # an input, whose formulas are not erda's
COPIES = ("data.jsonl", "rows.jsonl", "vectors.txt", "run", "tiny", "store", "corpus", "adapter")
Place = Callable[[Path, str], Iterator[Call]]  # writes its inputs into a folder and yields its calls


def _rows(name: str) -> list[dict[str, Any]]:
    rows = [toys.labelled(number, row) for number in range(6) for row in range(toys.N_EACH)]
    return [{**row, "relation": name if row["relation"] == "r0" else row["relation"]} for row in rows]


def relation(here: Path, name: str) -> Iterator[Call]:
    """A relation of a dataset, through to the report."""
    toys.write_lines(here / "data.jsonl", _rows(name))
    yield ["data", "convert", "data.jsonl"]
    yield toys.RUN
    yield ["report", "run", "--no-figures"]


def tacred_relation(here: Path, name: str) -> Iterator[Call]:
    """A relation in TACRED's format."""
    ends = {"subj_start": 0, "subj_end": 0, "obj_start": 2, "obj_end": 2}
    row = {"id": name, "token": ["ada", "met", "bob"], **ends}
    (here / "tacred.json").write_text(json.dumps([{**row, "relation": name}, {**row, "id": "b", "relation": "r"}]))
    yield ["data", "convert", "tacred.json"]


def fewrel_relation(here: Path, name: str) -> Iterator[Call]:
    """A relation in FewRel's format, with its descriptions."""
    row = {"tokens": ["ada", "met", "bob"], "h": ["ada", "Q1", [[0]]], "t": ["bob", name, [[2]]]}
    (here / "fewrel.json").write_text(json.dumps({name: [row, row], "r": [row]}))
    (here / "relations.json").write_text(json.dumps([{"id": name, "name": name, "description": name}]))
    yield ["data", "convert", "fewrel.json"]


def entity(here: Path, name: str) -> Iterator[Call]:
    """An entity, an id and a source of unlabelled text."""
    rows = toys.unlabelled(6)
    for row in rows[:3]:
        row["head"] |= {"name": name, "id": name}
        row["source"] = name
    for row in rows[3:6]:
        row["tokens"][3] = name
    toys.write_lines(here / "rows.jsonl", rows)
    yield ["corpus", "build", "rows.jsonl", "--out", "corpus"]
    yield ["corpus", "build", "--out", "corpus"]


def title(here: Path, name: str) -> Iterator[Call]:
    """A page of a dump."""
    text = name.encode(errors="replace").decode().replace("\0", "").replace("&", "&amp;").replace("<", "&lt;")
    page = f"<title>{text}</title><ns>0</ns><id>1</id><revision><text>[[{text}]] met [[Bob]] .</text></revision>"
    (here / "dump.xml").write_text(toys.dump(f"<page>{page}</page>"), errors="replace")
    yield ["corpus", "build", "dump.xml", "--out", "pages"]
    yield ["corpus", "build", "--out", "pages"]


def file_name(here: Path, name: str) -> Iterator[Call]:
    """The name of a file of examples."""
    path = f"{name}.jsonl"
    try:
        toys.write_lines(here / path, _rows("r0"))
    except (OSError, ValueError):
        path = name  # the file cannot exist, but can be requested
    yield ["data", "convert", path]
    run = list(toys.RUN)
    run[run.index("data.jsonl")] = path
    yield run
    yield ["report", "run", "--no-figures"]


def folder_name(here: Path, name: str) -> Iterator[Call]:
    """The name of a folder to write to, and to read from."""
    yield ["corpus", "build", "rows.jsonl", f"--out={name}"]
    yield ["corpus", "build", "--out", name]
    yield [*toys.RUN[:-2], f"--out={name}/run"]
    yield ["report", f"{name}/run", "--no-figures"]

    def save() -> None:
        from erda.methods.base import Method

        Method.load(Path("run/erda/100/method")).save(Path(name))
        Method.load(Path(name))

    yield save


def taught_relation(here: Path, name: str) -> Iterator[Call]:
    """A relation, an entity and a description, taught and asked about."""
    yield ["teach", f"--description={name}", "--store", "store", "--encoder", "tiny", "--", name, "[[ada]] met {{bob}}"]
    yield ["teach", "--store", "store", "--encoder", "tiny", "r1", f"[[{name}]] knew {{{{{name}}}}}"]
    toys.write_lines(here / "mine.jsonl", _rows(name))
    yield ["teach", "--store", "store", "--file", "mine.jsonl"]
    yield ["teach", "--not", "--store", "store", "--", name, f"[[{name}]] met {{{{eve}}}}"]
    yield ["edit", "r1", "--types", name, name, "--store", "store"]
    yield ["relations", "--store", "store"]
    yield ["relations", "--store", "store", "--", name]
    yield ["predict", "mine.jsonl", "--store", "store"]
    yield ["predict", "mine.jsonl", "--store", "store", "--out", "answers.csv"]
    yield ["data", "convert", "mine.jsonl", "--out", "converted.csv"]
    yield ["evaluate", "mine.jsonl", "--store", "store"]
    yield ["export", "exported", "--store", "store"]
    yield ["forget", "--store", "store", "--", name]
    yield ["versions", f"--store={name or 'store'}"]


def output_name(here: Path, name: str) -> Iterator[Call]:
    """The name of every output file and folder, and of the files that a command reads."""
    store = ["--store", "taught"]
    (here / "text.txt").write_text("ada met bob in the city .\n")
    yield ["predict", "data.jsonl", *store, f"--out={name}.csv"]
    yield ["predict", *store, "--", name]
    yield ["extract", "text.txt", "--entity", "ada", "--entity", "bob", *store, f"--out={name}.jsonl"]
    yield ["extract", "text.txt", f"--names={name}", *store]
    yield ["data", "convert", "data.jsonl", f"--out={name}2.csv"]
    yield ["data", "convert", "--out=copy.csv", "--", f"{name}2.csv"]
    yield ["review", "--list", "--relation=r0", "--text", "data.jsonl", *store, f"--out={name}3.jsonl"]
    yield ["evaluate", *store, "--", f"{name}3.jsonl"]
    yield ["export", *store, "--", f"{name} export"]
    yield ["tune", "--precision", "0.1", *store, "--", name]
    yield ["review", f"--relation={name}", *store, "--", name]
    yield ["corpus", "train", "rows.jsonl", f"--encoder={name}", f"--out={name} model"]
    yield ["corpus", "index", "corpus", f"--model={name}"]
    yield [*toys.AUGMENT[:-1], f"{name}4.jsonl"]


def store_name(here: Path, name: str) -> Iterator[Call]:
    """The folder of an extractor, through every command that changes it."""
    store = [f"--store={name}"]
    yield ["teach", "--encoder", "tiny", *store, "r1", "[[ada]] met {{bob}}", "[[eve]] met {{fay}}"]
    yield ["teach", *store, "r2", "[[ada]] was {{bob}}"]
    for change in (["--description", "a"], ["--name", "r3"]):
        yield ["edit", "r1", *change, *store]
    yield ["edit", "r3", "--into", "r2", *store]
    for call in (["versions", "--undo"], ["forget", "r2"], ["versions"], ["relations"], ["versions", "--keep", "1"]):
        yield [*call, *store]
    for call in (["predict", "data.jsonl"], ["export", "exported"]):
        yield [*call, *store]


def edited_relation(here: Path, name: str) -> Iterator[Call]:
    """The new name of a relation, and relations of commands that look one up."""
    store = ["--store", "taught"]
    yield ["edit", f"--name={name}", *store, "r1"]
    yield ["edit", f"--description={name}", *store, "r2"]
    yield ["edit", "--into=r2", *store, "--", name]
    yield ["review", "--list", f"--relation={name}", "--text", "data.jsonl", *store]
    yield ["forget", *store, "--", name]
    yield ["relations", *store]
    yield ["versions", *store]


def column_name(here: Path, name: str) -> Iterator[Call]:
    """A column of a table: in its header, and as an option."""
    with (here / GIVEN).open("w", newline="", errors="replace") as file:
        csv.writer(file).writerows([("text", name), ("[[ada]] met {{bob}}", "r0"), ("[[eve]] met {{fay}}", "r1")])
    yield ["data", "convert", GIVEN]
    yield ["data", "convert", GIVEN, f"--columns=text=text,relation={name}"]
    yield ["teach", "--file", GIVEN, f"--columns={name}=text", "--store", "taught"]
    yield ["predict", GIVEN, f"--columns=text={name}", "--store", "taught"]
    yield ["predict", GIVEN, "--store", "taught", "--out", "answers.csv"]


def found_file(here: Path, name: str) -> Iterator[Call]:
    """Files of somebody else, in folders that a command lists."""
    try:
        (here / "brat").mkdir()
        (here / "brat" / f"{name}.txt").write_text("ada met bob .")
        (here / "brat" / f"{name}.ann").write_text("T1\tName 0 99\tada\n")
        (here / "run" / name).mkdir(exist_ok=True)
        (here / "run" / name / "record.json").write_text("{}")
        (here / "taught" / "versions" / name).write_text("{}")
    except (OSError, ValueError):
        return
    yield ["data", "convert", "brat"]
    yield ["report", "run", "--no-figures"]
    yield ["versions", "--store", "taught"]
    yield ["versions", "--purge", "--store", "taught"]


def record_name(here: Path, name: str) -> Iterator[Call]:
    """A name in a record from elsewhere."""
    for path in (here / "run").glob("*/*/record.json"):
        value = path.read_text()
        said = json.dumps(name)[1:-1]
        path.write_text(value.replace('"r5"', f'"{said}"').replace('"data.jsonl"', f'"{said}"'))
    yield ["report", "run", "--no-figures"]


def option(flag: str) -> Place:
    """The value of an option."""

    def place(here: Path, name: str) -> Iterator[Call]:
        yield [*toys.RUN[:-2], "--out", "other", f"{flag}{name}"]

    return place


FLAGS = ("dataset", "method", "encoder", "preset", "config", "seeds", "device", "corpus", "order-family")
SETTINGS = ("encoder.vectors", "way", "learning_rate", "erda.memory_size", "cache_dir")
PLACES: tuple[Place, ...] = (
    *(relation, tacred_relation, fewrel_relation, entity, title, file_name, folder_name, record_name),
    *(taught_relation, output_name, store_name, edited_relation, column_name, found_file),
    *(option(f"--{flag}=") for flag in FLAGS),
    *(option(f"--set={name}=") for name in SETTINGS),
    option("--set="),
)


def name_trial(case_toys: Path, folder: Path) -> Trial:
    """Every name in every place."""

    pairs = [(place, name) for name in NAMES for place in PLACES]
    random.Random(0).shuffle(pairs)
    return Trial("hostile names", len(pairs), lambda case, number: _try(case, *pairs[number]))


def _try(case: Case, place: Place, name: str) -> Verdict:
    here = case.folder / "deep" / "er"  # so that a few ".." stay inside the case
    toys.copy(case.toys, COPIES, here)
    (here / "store").rename(here / "taught")
    victims = [case.folder.with_name("victim"), case.folder / "victim"]
    for victim in victims:
        victim.mkdir()
        (victim / "notes.txt").write_text(toys.NOTES)
    before = content_of(*victims)
    what = f"{getattr(place, '__name__', 'place')} {name[:40]!r}"
    for call in place(here, name):
        if not callable(call) and any(_NO_ARGUMENT.search(one) for one in call):
            continue
        answer = ask(call, here)
        what = f"{what.partition(':')[0]}: {'save' if callable(call) else ' '.join(call)[:80]!r}"
        with case.folder.with_name("said.txt").open("a", errors="backslashreplace") as said:
            said.write(f"{what}\n{answer.said}")
        if verdict := unclear(answer):
            return Verdict(verdict.kind, f"{what}: {verdict.why}")
        if raw := _CONTROLS.search(answer.out + answer.err):
            return Verdict("silent", f"{what}: {raw[0]!r} on the terminal")
        if any(line.startswith(FORGED) for line in (answer.out + answer.err).splitlines()):
            return Verdict("silent", f"{what}: a line of output was forged")
    if lost := [one for one in differing(content_of(*victims), before) if one in before]:
        return Verdict("lost", f"{what}: {lost[0]}")
    return _wrong_file(case.folder, what) or CLEAR


def _wrong_file(folder: Path, what: str) -> Verdict | None:
    """An output file whose content is executed or interpreted when opened."""
    for path in folder.rglob("exported/README.md"):
        if raw := re.search(r"<\w|(?<!\\)\]\(|\x1b", path.read_text()):
            return Verdict("silent", f"{what}: {raw[0]!r} in {path.name}")
    for path in (path for path in folder.rglob("*.csv") if path.name != GIVEN):
        for row in csv.reader(path.read_text().splitlines()):
            for cell in row:
                if _FORMULA.match(cell) and not re.fullmatch(r"[+-][\d.,]+(e[+-]?\d+)?( .*)?", cell):
                    return Verdict("silent", f"{what}: a formula in {path.name}: {cell[:40]!r}")
    return None
