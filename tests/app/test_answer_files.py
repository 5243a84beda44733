"""Answers to a file: kept when a person stops, written over nothing of the user's."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from toy_extractor import QUESTIONS, taught

from erda.app import answer_files
from erda.app.answer_files import AnswerBatch, FileQuestions, ask_rows, ask_text, write_answers
from erda.app.extractor import Extractor
from erda.encoders.contract import embedded_one
from erda.errors import DataError, SettingsError


@pytest.fixture
def extractor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Extractor:
    monkeypatch.setattr(answer_files, "BATCH", 1)
    (tmp_path / "q.txt").write_text("\n".join(QUESTIONS))
    return taught(tmp_path / "mine")


def test_the_rows_so_far_are_kept_when_a_person_stops(extractor: Extractor, tmp_path: Path) -> None:
    questions = ask_rows(extractor.version, tmp_path / "q.txt")
    write_answers(questions, tmp_path / "whole.jsonl")

    def stopped_after(n: int) -> FileQuestions:
        def batches() -> Iterator[AnswerBatch]:
            yield from islice(questions.batches(), n)
            raise KeyboardInterrupt

        return replace(questions, batches=batches)

    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines()
    (tmp_path / "a.jsonl").write_text("mine")
    for n in (0, 2):
        found = write_answers(stopped_after(n), tmp_path / "a.jsonl", overwrite=True)
        assert (found.partial, found.n_rows) == (tmp_path / "a.partial.jsonl", n)
        assert (tmp_path / "a.jsonl").read_text() == "mine", "no old answers are replaced by some new ones"
        assert (tmp_path / "a.partial.jsonl").exists() == (n > 0)
    assert (tmp_path / "a.partial.jsonl").read_bytes().splitlines() == lines[:2]


MEASURED = """
import resource, sys
from toy_words import FOUNDED, Words
from erda.app.extractor import Extractor
from erda.cli.main import main
opened = Extractor.open
Extractor.open = lambda folder, **asked: opened(folder, **{**asked, "encoder": Words()})
main(["teach", "founded by", *FOUNDED])
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
assert main(["extract", "big.txt", "--out", "found.csv", "--entity", "Acme", "--entity", "Ann"]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
"""


def test_a_big_text_takes_no_more_memory(tmp_path: Path) -> None:
    line = "Acme was founded by Ann .\n" + 600 * "much is said about nothing in this long and quiet line .\n"
    (tmp_path / "big.txt").write_text(60 * line)  # 2 MB
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, cwd=tmp_path, env=path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "found.csv").read_text().splitlines()) > 60
    assert int(done.stdout.split()[-1]) < 10_000, "kilobytes"


def test_an_output_that_another_command_has_written_meanwhile_is_not_replaced(
    extractor: Extractor, tmp_path: Path
) -> None:
    out = tmp_path / "a.jsonl"
    with pytest.raises(SettingsError, match="exists"):
        write_answers(
            ask_rows(extractor.version, tmp_path / "q.txt"), out, tick=lambda line: out.write_text("theirs") and None
        )
    assert out.read_text() == "theirs"


def test_a_kill_at_any_step_leaves_nothing_that_the_next_command_does_not_remove(
    extractor: Extractor, tmp_path: Path
) -> None:
    questions, out = ask_rows(extractor.version, tmp_path / "q.txt"), tmp_path / "a.jsonl"
    write_answers(questions, tmp_path / "whole.jsonl")
    before, n_steps = {*tmp_path.iterdir()}, 0
    for step in count():
        out.unlink(missing_ok=True)
        if run_in_fork(lambda: write_answers(questions, out), kill_at=step) == 0:
            break
        n_steps += 1
        assert len({*tmp_path.iterdir()} - before) <= 1
        write_answers(questions, out, overwrite=True)
        assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
        assert {*tmp_path.iterdir()} - before == {out}, step
    assert n_steps > 3


def run_in_fork(call: Callable[[], object], *, kill_at: int) -> int:
    """Run a call in a process that is killed at a change of the file system, counted from 0; return its status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    steps = count()
    changes = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}

    def watch(event: str, arguments: tuple) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in changes or is_write) and next(steps) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    status = 1
    try:
        call()
        status = 0
    finally:
        os._exit(status)


def test_no_output_is_an_input(extractor: Extractor, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("SpaceX\nElon\n")
    (tmp_path / "link.csv").hardlink_to(names)
    asking = ask_text(extractor.version, tmp_path / "q.txt", {"SpaceX": None, "Elon": None})
    for out in (names, tmp_path / "link.csv", tmp_path / "mine" / ".." / "names.csv"):
        with pytest.raises(SettingsError, match="is the input"):
            write_answers(asking, out, inputs=[names])
    assert names.read_text() == "SpaceX\nElon\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "mine", "names.csv", "q.txt"]


LINES = [
    {
        "id": "a-1",
        "text": "  SpaceX, now  large, was founded by Elon Musk.",
        "entities": None,
        "year": 2002,
        "by": "=x",
    },
    {
        "text": "Ada was born in London.",
        "entities": [{"span": [0, 3], "type": "PERSON"}, {"span": [16, 22], "name": "L."}],
    },
    {"id": "no text"},
    {"id": "long", "text": f"{'It rained. ' * 2000}Ada met Bob."},
]


def test_answers_about_text_keep_the_users_data(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.entities.find_spec", lambda name: None)
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, LINES)))
    asking = ask_text(extractor.version, file, pairs="all")
    outs = {ending: tmp_path / f"found.{ending}" for ending in ("jsonl", "csv", "parquet")}
    assert {write_answers(asking, out).n_entities for out in outs.values()} == {6}
    rows = [json.loads(line) for line in outs["jsonl"].read_text().splitlines()]
    ids = [("a-1", 1)] * 2 + [(None, 2)] * 2 + [("no text", 3)] + [("long", 4)] * 2
    assert [(row["id"], row["line"]) for row in rows] == ids
    for row in (rows[0], rows[2]):
        text = row["text"]
        assert text == LINES[row["line"] - 1]["text"]
        mentions = {text[row["head_start"] : row["head_end"]], text[row["tail_start"] : row["tail_end"]]}
        assert mentions == ({"SpaceX", "Elon Musk"} if row["line"] == 1 else {"Ada", "London"})
    assert rows[0]["sentence"] == "[[SpaceX]] , now large , was founded by {{Elon Musk}} ."
    assert (rows[2]["head"], rows[2]["head_type"], rows[2]["tail"]) == ("Ada", "PERSON", "L.")
    assert "tail_type" not in rows[2]
    assert "text" in rows[4]["error"]
    assert [one.get("input") for one in rows] == [{"year": 2002, "by": "=x"}] * 2 + [None] * 5
    assert rows[5]["text"] is None, "a long line is not repeated in every row"
    table = pq.read_table(outs["parquet"]).to_pylist()
    kept = ("id", "line", "text", "head_start", "head_end", "tail_start", "tail_end", "head_type", "relation")
    assert [[one[name] for name in kept] for one in table] == [[one.get(name) for name in kept] for one in rows]
    assert [(one["input_year"], one["input_by"]) for one in table[:3]] == [("2002", "=x")] * 2 + [(None, None)]
    with outs["csv"].open(newline="") as cells:
        read = list(csv.DictReader(cells))
    assert [[one[name] for name in kept] for one in read] == [
        ["" if one.get(name) is None else str(one[name]) for name in kept] for one in rows
    ]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_answers_to_rows_keep_the_columns_of_the_input(extractor: Extractor, tmp_path: Path, ending: str) -> None:
    row = {"id": "7", "Text": QUESTIONS[0], "relation": "truth", "Source file": "a, b"}
    if ending == "csv":
        (tmp_path / "q.csv").write_text(",".join(row) + "\n" + ",".join(f'"{one}"' for one in row.values()) + "\n")
    else:
        row = {name.lower(): value for name, value in row.items()}
        wrong = json.dumps({"text": "x", "note": "a\ud800b"})  # a lone surrogate
        (tmp_path / "q.jsonl").write_text("\n".join((json.dumps(row), wrong, "[" * 5000)))
    for out in (tmp_path / "a.jsonl", tmp_path / "a.parquet"):
        write_answers(ask_rows(extractor.version, tmp_path / f"q.{ending}"), out)
    found, *others = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    expected = {name: value for name, value in row.items() if name != "id"}
    assert [one.get("input") for one in others] == ([] if ending == "csv" else [{"text": "x", "note": "a?b"}, None])
    assert (found["id"], found["line"], found["input"]) == ("7", 2 if ending == "csv" else 1, expected)
    table = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert {f"input_{name}": value for name, value in expected.items()}.items() <= table[0].items()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_has_a_row_for_each_relation_of_a_pair(extractor: Extractor, tmp_path: Path, ending: str) -> None:
    row = {"id": "a", "text": "Acme was founded by Jo Lee.", "entities": [{"span": [0, 4]}, {"span": [20, 26]}], "n": 1}
    (tmp_path / "texts.jsonl").write_text(json.dumps(row))
    asking = ask_text(extractor.version, tmp_path / "texts.jsonl", pairs="all", min_confidence=0)
    out, lines = tmp_path / f"found.{ending}", tmp_path / "found.jsonl"
    assert (write_answers(asking, out).n_rows, write_answers(asking, lines).n_rows) == (6, 2)
    expected = [
        (one["head"], relation, confidence)
        for one in map(json.loads, lines.read_text().splitlines())
        for relation, confidence in ((each["relation"], each["confidence"]) for each in one["ranked"])
    ]
    table = list(csv.DictReader(out.read_text().splitlines())) if ending == "csv" else pq.read_table(out).to_pylist()
    assert [(one["head"], one["relation"], float(one["confidence"])) for one in table] == expected
    kept = {(one["id"], str(one["line"]), one["text"], str(one["head_start"]), one["input_n"]) for one in table}
    assert kept == {("a", "1", row["text"], start, "1") for start in ("0", "20")}


@pytest.mark.parametrize("names", [{"Ada": None, "Bob": None}, None])
def test_a_sentence_that_is_too_long_spoils_its_own_line_only(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, str | None] | None
) -> None:
    monkeypatch.setattr("erda.app.entities.find_spec", lambda name: None)
    (tmp_path / "long.txt").write_text(f"So Ada met Bob.\nSo Ada {'so ' * 7000} met Bob.\nSo Ada left Bob.\n")
    asking = ask_text(extractor.version, tmp_path / "long.txt", names, pairs="all")
    rows = [row for batch in asking.batches() for row in batch.rows]
    assert [(row["line"], "error" in row) for row in rows] == [(1, False)] * 2 + [(2, True)] + [(3, False)] * 2


def test_batches_are_answered_in_turn() -> None:
    """Batches keep their order, a fault of the reader comes after those before it, and running ones can be stopped."""

    def read(n: int) -> Iterator[list[int]]:
        yield from ([number] for number in range(n))
        raise DataError("line 9: cut off.")

    def answer(batch: list[int]) -> int:
        time.sleep(0.01 * (batch[0] % 3))
        return batch[0]

    answers = answer_files._in_turn(answer, read(7))
    assert list(islice(answers, 7)) == list(range(7))
    with pytest.raises(DataError, match="cut off"):
        next(answers)

    def endless(batch: list[int]) -> int:
        while batch[0] > 1:
            embedded_one()
            time.sleep(0.001)
        return batch[0]

    answers = answer_files._in_turn(endless, read(7))
    assert list(islice(answers, 2)) == [0, 1]
    answers.close()  # as Ctrl-C does; it returns
