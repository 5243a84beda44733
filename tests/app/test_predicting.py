"""Answers to a file: resumed after a kill, written over nothing of the user's."""

import csv
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from toy_extractor import QUESTIONS, taught

from erda.app import answer_files
from erda.app.answer_files import Asking, Piece, ask_rows, ask_text, write_answers
from erda.app.extractor import Extractor
from erda.errors import DataError, SettingsError


@pytest.fixture
def extractor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Extractor:
    monkeypatch.setattr(answer_files, "PIECE", 1)
    (tmp_path / "q.txt").write_text("\n".join(QUESTIONS))
    return taught(tmp_path / "mine")


def stop(asking: Asking, out: Path, *, after: int) -> Path:
    """Write some pieces and stop; the folder that is left."""

    def pieces(n_read: int) -> Iterator[Piece]:
        yield from islice(asking.pieces(n_read), after)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_answers(Asking(asking.path, asking.inputs, asking.job, pieces), out)
    return out.with_name(f"{out.name}.partial")


@pytest.mark.parametrize("change", ["row", "end", "moved", "added"])
def test_rows_that_were_edited_are_answered_again(extractor: Extractor, tmp_path: Path, change: str) -> None:
    asking, out = ask_rows(extractor.version, tmp_path / "q.txt"), tmp_path / "a.jsonl"
    write_answers(asking, tmp_path / "whole.jsonl")
    rows = stop(asking, out, after=2) / "rows.jsonl"
    lines = rows.read_bytes().splitlines(keepends=True)
    assert [line[:1] for line in lines] == [b"{", b"[", b"{", b"["]
    if change == "row":
        lines[0] = lines[0].replace(b"founded by", b"born in")
    elif change == "end":
        lines[3] = lines[3].replace(b"[2", b"[3")
    elif change == "moved":
        lines = [*lines[2:], *lines[:2]]
    else:
        lines.insert(2, lines[0])
    rows.write_bytes(b"".join(lines))
    found = write_answers(asking, out)
    assert found.n_found == (1 if change in ("end", "added") else 0)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not rows.parent.exists()


def test_rows_of_another_question_are_not_taken(extractor: Extractor, tmp_path: Path) -> None:
    """The digest of a piece covers the job."""
    out = tmp_path / "a.jsonl"
    rows = stop(ask_rows(extractor.version, tmp_path / "q.txt", top=1), out, after=2) / "rows.jsonl"
    foreign = rows.read_bytes()
    stop(ask_rows(extractor.version, tmp_path / "q.txt"), out, after=1)
    rows.write_bytes(foreign)
    assert write_answers(ask_rows(extractor.version, tmp_path / "q.txt"), out).n_found == 0
    assert all(len(json.loads(line)["ranked"]) == 3 for line in out.read_text().splitlines())


def test_a_folder_of_the_user_is_left_alone(extractor: Extractor, tmp_path: Path) -> None:
    (tmp_path / "a.csv.partial").mkdir()
    (tmp_path / "a.csv.partial" / "notes.txt").write_text("mine")
    asking = ask_rows(extractor.version, tmp_path / "q.txt")
    with pytest.raises(DataError, match=r"a\.csv\.partial exists and was not written by this command"):
        write_answers(asking, tmp_path / "a.csv")
    kept = stop(asking, tmp_path / "b.csv", after=1) / "notes.txt"
    kept.write_text("mine")
    write_answers(asking, tmp_path / "b.csv")
    for folder in ("a.csv.partial", "b.csv.partial"):
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["notes.txt"]


def test_an_empty_folder_of_the_user_is_left_alone(extractor: Extractor, tmp_path: Path) -> None:
    (tmp_path / "a.csv.partial").mkdir()
    with pytest.raises(DataError, match=r"a\.csv\.partial exists and was not written by this command"):
        write_answers(ask_rows(extractor.version, tmp_path / "q.txt"), tmp_path / "a.csv")
    assert (tmp_path / "a.csv.partial").is_dir()


def test_a_kill_at_any_step_leaves_nothing_that_the_next_command_does_not_remove(
    extractor: Extractor, tmp_path: Path
) -> None:
    asking, out = ask_rows(extractor.version, tmp_path / "q.txt"), tmp_path / "a.jsonl"
    write_answers(asking, tmp_path / "whole.jsonl")
    before = {*tmp_path.iterdir()}
    is_complete = []
    for step in count():
        out.unlink(missing_ok=True)
        if run_in_fork(lambda: write_answers(asking, out), kill_at=step) == 0:
            break
        is_complete.append(out.exists())
        try:
            write_answers(asking, out)
        except SettingsError:  # only the removal of its folder was missing
            assert is_complete[-1]
        assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
        assert {*tmp_path.iterdir()} - before == {out}, step
    assert len(is_complete) > 10
    assert is_complete[-1]


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
    n_entities = {write_answers(asking, out).n_entities for out in outs.values()}
    assert n_entities == {6}
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
def test_every_row_keeps_its_id_also_a_number_or_that_of_an_invalid_row(
    extractor: Extractor, tmp_path: Path, ending: str
) -> None:
    file = tmp_path / f"q.{ending}"
    texts = [QUESTIONS[0], "nothing is marked", QUESTIONS[1]]
    lines = {
        "csv": ["id,text", *(f'{number},"{text}"' for number, text in enumerate(texts))],
        "jsonl": [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)],
    }
    file.write_text("\n".join(lines[ending]))
    write_answers(ask_rows(extractor.version, file), tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(row["id"], "error" in row) for row in rows] == [("0", False), ("1", True), ("2", False)]


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


def test_a_missing_library_is_named_before_the_first_answer(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.answer_files.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="pip install pyarrow"):
        write_answers(ask_rows(extractor.version, tmp_path / "q.txt"), tmp_path / "a.parquet")
    assert not list(tmp_path.glob("a.parquet*"))


def test_a_sentence_that_is_too_long_spoils_its_own_line_only(extractor: Extractor, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(f"Ada met Bob.\nAda {'so ' * 7000} met Bob.\nAda left Bob.\n")
    asking = ask_text(extractor.version, tmp_path / "long.txt", {"Ada": None, "Bob": None}, pairs="all")
    rows = [row for piece in asking.pieces(0) for row in piece.rows]
    assert [(row["line"], "error" in row) for row in rows] == [(1, False)] * 2 + [(2, True)] + [(3, False)] * 2
