"""Excel workbooks are tables: the first sheet, cells as text, faults with their rows."""

import sys
import zipfile
from pathlib import Path

import pytest

from erda.app import answer_files
from erda.app.texts import read_texts
from erda.data.formats import csv_examples
from erda.data.own_data import describe, read_examples
from erda.errors import DataError, SettingsError

HEADER = ("text", "head", "tail", "relation", "year", "holds")
ROWS = (
    ("Ikea was set up in 1943 by Ingvar Kamprad.", "Ikea", "Ingvar Kamprad", "founded by", 1943, True),
    ("Apple hired Tim Cook.", "Apple", "Tim Cook", "founded by", None, False),
    (None, None, None, None, None, None),
    ("[[Ulm]] is {{Einstein}}'s place of birth.", None, None, "born in"),
)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A workbook with two sheets."""
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install 'erda[excel]'")
    made, path = openpyxl.Workbook(), tmp_path / "table.xlsx"
    for row in (HEADER, *ROWS):
        made.active.append(row)
    made.create_sheet("other").append(("no", "table"))
    made.save(path)
    return path


def test_the_first_sheet_is_read_like_a_csv_file(book: Path) -> None:
    reading = read_examples(book)
    assert [(one.head.name, one.tail.name, one.relation, one.id) for one in reading.examples] == [
        ("Ikea", "Ingvar Kamprad", "founded by", "table:2"),
        ("Ulm", "Einstein", "born in", "table:5"),
    ]
    (against,) = reading.counterexamples
    assert against.tail.name == "Tim Cook"
    assert describe(reading).startswith(f"{book}: 2 examples of 2 relations (xlsx)")
    texts = list(read_texts(book))
    assert [one.line for one in texts] == [2, 3, 5]
    assert (texts[0].row.text, texts[0].columns["year"]) == (ROWS[0][0], "1943")


def test_columns_are_named_and_faults_have_their_rows(book: Path) -> None:
    assert len(read_examples(book, columns={"relation": "year"}).counts) == 1
    with pytest.raises(DataError, match=r"table\.xlsx:1: the header has no column 'sentence'"):
        list(read_texts(book, columns={"text": "sentence"}))
    with pytest.raises(SettingsError, match="only tables"):
        read_examples(book, "jsonl", columns={"text": "sentence"})
    with pytest.raises(DataError, match=r"table\.xlsx:5: holds"):
        read_examples(book, columns={"holds": "relation"})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text,relation\n"])
def test_what_is_no_workbook_is_one_line(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install 'erda[excel]'")
    path = tmp_path / "a.xlsx"
    path.write_bytes(content)
    for read in (read_examples, lambda path: list(read_texts(path))):
        with pytest.raises(DataError, match=r"a\.xlsx: cannot be read.*not an Excel workbook.* CSV"):
            read(path)
    with pytest.raises(DataError, match="no such file"):
        read_examples(tmp_path / "missing.xlsx")


def edited(book: Path, name: str, old: bytes, new: bytes) -> Path:
    """A copy of the workbook with other bytes in one of its files."""
    path = book.with_name("edited.xlsx")
    with zipfile.ZipFile(book) as source, zipfile.ZipFile(path, "w") as copy:
        for one in source.namelist():
            content = source.read(one)
            assert one != name or old in content
            copy.writestr(one, content.replace(old, new) if one == name else content)
    return path


def test_a_damaged_workbook_is_one_line(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_examples, "MOST_ROWS", 1_000)
    with pytest.raises(DataError, match=r"edited\.xlsx: has more than 1,000 rows"):
        read_examples(edited(book, "xl/worksheets/sheet1.xml", b'<row r="5"', b'<row r="99999999999"'))
    with pytest.raises(DataError, match=r"edited\.xlsx: cannot be read"):
        read_examples(edited(book, "xl/styles.xml", b"rgb=", b"rwb="))  # a TypeError of openpyxl


def test_without_openpyxl_the_message_names_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.setattr(csv_examples, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"erda\[excel\]'.*CSV"):
        read_examples(tmp_path / "a.xlsx")
    (tmp_path / "a.ods").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"a\.ods: \.ods is not read; save it as \.xlsx or CSV"):
        read_examples(tmp_path / "a.ods")


def test_a_cell_with_an_error_is_empty_and_answers_can_be_written(book: Path, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    made = openpyxl.load_workbook(book)
    made.active.append(("Ada met Bob.", "Ada", "Bob", "#N/A"))
    made.active.append(("Statins help.", "Statins", "#N/A", "treats"))
    made.save(book)
    with pytest.raises(DataError, match=r"table\.xlsx:7: the tail is empty"):
        read_examples(book)
    rows = [{"line": 1, "text": "=A1\x0b", "confidence": 0.5, "input": {"year": "1943"}}]
    answer_files.WRITERS[".xlsx"](tmp_path / "a.xlsx", iter(rows), ("line", "text", "confidence", "input_year"))
    table = csv_examples.read_table(tmp_path / "a.xlsx")
    assert (table.names, [row.fields for row in table.rows]) == (
        ["line", "text", "confidence", "input_year"],
        [["1", "'=A1 ", "0.5", "1943"]],
    )
