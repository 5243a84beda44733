"""Excel files in the commands of an extractor."""

import json
from pathlib import Path

import pytest
from command_line import TESTS, Erda
from toy_extractor import BORN, FOUNDED


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
