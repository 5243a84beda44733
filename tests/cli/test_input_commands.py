"""Inputs of commands: plain text and its entities, lines that cannot be read, Excel files, pipes."""

import json
import os
from pathlib import Path

import networkx as nx
import pytest
from command_line import TESTS, Erda
from toy_extractor import BORN, FOUNDED

from erda.cli.store_options import input_file
from erda.errors import DataError


def test_extraction_takes_a_sentence_and_says_why_nothing_came_out(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    named = ("--entity", "SpaceX", "--entity", "Elon Musk")
    assert len(erda("extract", "SpaceX was founded by Elon Musk.", "--pairs=all", *named).lines) == 2
    nothing = erda("extract", "It rained.", *named)
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "No entity was found in the text.\n")
    assert erda("extract", "SpaceX rained.", "--pairs=all", *named).err == "No line has two entities.\n"
    said = erda("extract", "It rained.").err.splitlines()
    assert said[0] == "No entity was found in the text. Entities can be named: --entity NAME, or --names FILE."
    assert said[-1].endswith("erda data get entities")


def test_extraction_writes_graphs(erda: Erda, monkeypatch: pytest.MonkeyPatch) -> None:
    erda("teach", "founded by", *FOUNDED)
    Path("news.txt").write_text("SpaceX was founded by Elon.\nTesla was founded by elon.\n")
    Path("aliases.txt").write_text("Tesla\tTesla Inc.\nTSLA\tTesla Inc.\nSpaceX\n")
    asked = ("extract", "news.txt", *(f"--entity={one}" for one in ("SpaceX", "Tesla", "Elon", "elon")))
    asked += ("--min-confidence=0", "--aliases=aliases.txt")
    for ending in ("graphml", "ttl", "cypher"):
        assert erda(*asked, "--out", f"found.{ending}").lines == [f"found.{ending}: 2 rows"]
        assert "Tesla Inc." in Path(f"found.{ending}").read_text()
    assert set(nx.read_graphml("found.graphml")) == {"SpaceX", "Elon", "Tesla Inc."}
    for more in (["--out=found.csv"], []):
        assert "--aliases: only a graph has them" in erda(*asked, *more).err
    monkeypatch.setattr("erda.errors.find_spec", lambda name: None)
    assert "pip install 'erda[graph]'" in erda(*asked, "--out=other.ttl").err


def test_the_tagger_is_named_only_where_it_ran(erda: Erda) -> None:
    erda("teach", "founded by", *FOUNDED)
    row = {"text": "Acme was founded by Jo Lee.", "entities": [{"span": [0, 4]}, {"span": [20, 26]}]}
    Path("given.jsonl").write_text(json.dumps(row) + "\n")
    Path("mixed.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({"text": row["text"]}) + "\n")
    assert erda("extract", "given.jsonl", "--pairs=all").err == ""
    mixed = erda("extract", "mixed.jsonl", "--pairs=all")
    assert [json.loads(line)["entities"] for line in mixed.lines] == ["given"] * 2 + ["capitalised"] * 2
    assert mixed.err.startswith("Entities were guessed by capital letters.")


def test_extraction_names_the_lines_it_could_not_read_and_the_pairs_left_out(
    erda: Erda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erda.app.questions.MOST_PAIRS", 3)
    erda("teach", "founded by", *FOUNDED)
    Path("news.txt").write_bytes(b"Ann \x07 met Bo.\nAnn \xe7 met Bo.\nAnn met Bo. Ann met Bo. Ann met Bo.\n")
    done = erda("extract", "news.txt", "--entity", "Ann", "--entity", "Bo", "--pairs=all", "--out", "found.csv")
    assert (done.status, done.lines) == (2, ["found.csv: 6 rows"])
    said = done.err.splitlines()
    assert said[0].startswith("erda: news.txt:1: the text holds a control character")
    assert said[1].startswith("  news.txt:2: not UTF-8")
    assert said[2].startswith("  news.txt:3: 3 pairs of entities left out")


def test_commands_read_excel_files(erda: Erda) -> None:
    Path("t.xls").write_bytes(b"PK\x03\x04")
    done = erda("teach", "--file", "t.xls")
    assert (done.status, "CSV" in done.err) == (2, True)
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install 'erda[excel]'")

    def write(name: str, *rows: tuple[str | None, ...]) -> None:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(name)

    taught = [(one, "founded by") for one in FOUNDED] + [(one, "born in") for one in BORN]
    write("t.xlsx", ("Sentence", "relation"), *taught)
    assert "5 new examples" in erda("teach", "--file", "t.xlsx", "--columns", "text=sentence").lines[0]
    write("q.xlsx", ("id", "text", "relation"), *((f"q{i}", *one) for i, one in enumerate(TESTS)))
    assert erda("predict", "q.xlsx", "--out", "a.jsonl").status == 0
    assert [json.loads(line)["id"] for line in Path("a.jsonl").read_text().splitlines()] == ["q0", "q1"]
    assert erda("evaluate", "q.xlsx", "--min-confidence", "0").status == 0
    write("texts.xlsx", ("text", "year"), ("SpaceX was founded by Elon .", "2002"))
    assert erda("extract", "texts.xlsx", "--pairs=all", "--out", "f.jsonl").status == 0
    row = json.loads(Path("f.jsonl").read_text().splitlines()[0])
    assert (row["line"], row["input"]) == (2, {"year": "2002"})


def test_a_pipe_can_be_read_twice_and_faults_name_it() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"[[a]] b {{c}}\n")
    os.close(write_end)
    name = f"/dev/fd/{read_end}"
    with pytest.raises(DataError, match=rf"^{name}:1: wrong$"), input_file(name) as path:  # noqa: PT012
        assert path.read_bytes() == path.read_bytes() == b"[[a]] b {{c}}\n"
        raise DataError(f"{path}:1: wrong")
    os.close(read_end)
