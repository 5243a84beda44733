"""`erda list datasets` and `erda data get | convert`, called through the argument parser."""

import argparse
import json
from pathlib import Path

import pytest
from toy_examples import row, write_lines

from erda.cli.checking import help_texts
from erda.cli.data_commands import add_parser
from erda.data.own_data import read_examples
from erda.errors import DataError, SettingsError


def erda(*words: str) -> None:
    parser = argparse.ArgumentParser(prog="erda")
    add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(words)
    args.handler(args)


def test_list_shows_which_datasets_are_present(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ERDA_DATA", str(tmp_path))
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path / "cache"))
    erda("list", "datasets")
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    places = {"atlas": "embedded", "fewrel": "to fetch", "tacred": "to obtain", "entities": "to fetch"}
    assert [name for name, place in places.items() if place not in lines[name]] == []
    (tmp_path / "redoc41").mkdir()
    for name in ("examples.jsonl.gz", "relations.json"):
        (tmp_path / "redoc41" / name).touch()
    erda("list", "datasets")
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "here " in lines["redoc41"]


def test_check_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [row(), row(), row(relation="knows"), row(tokens=["Al", "met", "Bo"], relation=None)]
    rows += [row(tokens=["Al", str(number), "Bo"], relation=f"r{number}") for number in range(3)]
    path = write_lines(tmp_path / "mine.jsonl", rows)
    erda("data", "convert", str(path))
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: 5 examples of 5 relations (jsonl)",
        *(f"        1  {name}" for name in ("knows", "meets", "r0", "r1", "r2")),
        "1 row without a relation",
        "1 duplicate, kept once:",
        "  2 repeats 1",
        "2 examples repeat the sentence and entities of another with a different relation",
        "longest sentence: 4 tokens",
    ]


def test_check_reports_every_fault(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", [row(), row(tail={"span": [2, 9]}), "{"])
    with pytest.raises(DataError) as caught:
        erda("data", "convert", str(path))
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{path}:2", f"{path}:3"]
    (tmp_path / "relations.json").write_text(json.dumps([{"id": "likes", "name": "likes"}]))
    with pytest.raises(DataError, match=r"mine\.jsonl:1: unknown relation 'meets'\. Known: likes\."):
        erda("data", "convert", str(path))


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the input files of the examples in `convert --help`."""
    monkeypatch.chdir(tmp_path)
    regions = [{"id": name, "value": {"start": at, "end": at + 3}} for name, at in (("a", 0), ("b", 8))]
    result = [*regions, {"type": "relation", "from_id": "a", "to_id": "b", "labels": ["meets"]}]
    task = {"data": {"text": "Ann met Bob"}, "annotations": [{"result": result}]}
    Path("annotated.json").write_text(json.dumps([task, {**task, "annotations": []}]))
    Path("brat-folder").mkdir()
    Path("brat-folder/a.txt").write_text("Ann met Bob")
    Path("brat-folder/a.ann").write_text("T1\tPer 0 3\tAnn\nT2\tPer 8 11\tBob\nR1\tmeets Arg1:T1 Arg2:T2\n")
    return tmp_path


def test_the_examples_in_the_help_of_convert_run(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in help_texts()["data convert"]["more"].rpartition("examples:\n")[2].splitlines():
        erda(*line.split()[1:])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "annotated.json: 1 example of 1 relation (labelstudio)"
    assert "my-examples.jsonl: 1 example of 1 relation, from annotated.json (labelstudio)" in said
    assert "1 row left out: no relation is annotated" in said
    for name in ("my-examples.jsonl", "my-examples.csv"):
        (example,) = read_examples(Path(name)).examples
        assert (example.tokens, example.relation) == (("Ann", "met", "Bob"), "meets")


def test_convert_writes_all_or_nothing(inputs: Path) -> None:
    out = Path("out.jsonl")
    out.write_text("before")
    Path("bad.csv").write_text("text,relation\n[[a]] b {{c}},r\n[[a]] b,r\n")
    with pytest.raises(DataError, match=r"bad\.csv:3: no tail is marked"):
        erda("data", "convert", "bad.csv", "--out", "out.jsonl", "--overwrite")
    for wrong in ("out.txt", "out"):
        with pytest.raises(SettingsError, match=r"ends in \.jsonl, \.csv"):
            erda("data", "convert", "annotated.json", "--out", wrong)
    Path("hard.jsonl").hardlink_to(out)
    Path("soft.csv").symlink_to(out)
    for same in ("out.jsonl", "./out.jsonl", "hard.jsonl", "soft.csv"):
        with pytest.raises(SettingsError, match="is the input"):
            erda("data", "convert", "out.jsonl", "--out", same)
    assert out.read_text() == "before"
    left = Path(".new.jsonl.0123456789abcdef.tmp")  # by a killed process
    left.touch()
    erda("data", "convert", "annotated.json", "--out", "new.jsonl")
    assert not left.exists()
