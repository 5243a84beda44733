"""Tables in three formats."""

import csv
import io
import re

import pytest

from erda.benchmark.report.table_formats import ResultTable, to_csv, to_markdown, to_terminal
from erda.benchmark.statistics import Summary

TABLE = ResultTable(
    name="toy",
    title="Accuracy (%)",
    columns=("method", "n", "task 1", "task 2"),
    rows=(("erda_1", 3, Summary(66.6666, 1.5, 3), Summary(50.0, None, 1)), ("chance", None, "10.00", None)),
    notes=("A note with 5 % & more.",),
)


def test_terminal_columns_are_aligned() -> None:
    lines = to_terminal(TABLE).splitlines()
    assert lines[0] == "Accuracy (%)"
    assert lines[2].split() == ["method", "n", "task", "1", "task", "2"]
    assert lines[4] == "erda_1      3  66.67 ± 1.50     50.00"
    assert lines[5] == "chance      –         10.00         –"
    assert lines[-1] == TABLE.notes[0]


def test_markdown_has_as_many_cells_as_columns() -> None:
    lines = [line for line in to_markdown(TABLE).splitlines() if line.startswith("|")]
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[2] == "| erda_1 | 3 | 66.67 ± 1.50 | 50.00 |"
    assert {line.count("|") for line in lines} == {5}


def test_csv_keeps_full_precision_and_spreads_summaries() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert float(rows[0]["task 1"]) == 66.6666
    assert float(rows[0]["task 1 sd"]) == 1.5
    assert rows[0]["task 1 n"] == "3"
    assert rows[0]["task 2 sd"] == ""
    assert rows[1]["task 1"] == "10.00"
    assert rows[1]["n"] == ""


HOSTILE = "=cmd|calc <b>*x*</b> [a](b) `c`\nline two\x1b[2J\u202eright"


def test_hostile_names_are_escaped() -> None:
    table = ResultTable(
        "t", f"Title {HOSTILE}", ("method", "n"), ((HOSTILE, 1), ("-1+2", 2), ("@x", 3), ("_a_ # b", 4)), (HOSTILE,)
    )
    markdown, text, comma = to_markdown(table), to_terminal(table), to_csv(table)
    for written in (markdown, text, comma):
        assert "\x1b" not in written
        assert "\u202e" not in written
    row = next(line for line in markdown.splitlines() if line.startswith("| =cmd"))
    assert row.count("|") - row.count("\\|") == 3, "a pipe ends no cell"
    assert "line two" in row, "a line end ends no row"
    bare = re.sub(r"\\.", "", markdown)
    for sign in ("<b>", "*x*", "[a]", "`c`"):
        assert sign not in bare
    assert r"\_a\_" in markdown
    assert [line[:2] for line in comma.splitlines()[1:]] == ["'=", "'-", "'@", "_a"]


@pytest.mark.parametrize("number", ["+1.25", "-0.50", "+1.20 to +3.40", "-1e-05"])
def test_numbers_stay_numbers_in_csv(number: str) -> None:
    assert to_csv(ResultTable("t", "T", ("a", "b"), (("x", number),))).splitlines()[1] == f"x,{number}"


@pytest.mark.parametrize(
    ("name", "cell"),
    [("=1", "'=1"), (" =1", "' =1"), ("\uff1d1", "'\uff1d1"), ("a;=1", "a;'=1"), ("\ufeff+1", "'\ufeff+1")],
)
def test_no_name_is_a_formula_in_csv(name: str, cell: str) -> None:
    assert to_csv(ResultTable("t", "T", ("a",), ((name,),))).splitlines()[1] == cell
