"""The demo: its sentences can be read, the extractor may be taught twice, and the summary names every method."""

from dataclasses import replace
from pathlib import Path

import pytest
from toy_extractor import Words
from toy_runs import toy_record

from erda.app.extractor import Extractor
from erda.benchmark.statistics import Summary
from erda.cli import demo_commands
from erda.cli.demo_commands import LINES, PARTS, demonstrate_extractor, summarise
from erda.cli.main import main
from erda.methods import METHODS
from erda.text.marks import example_from_marks


def test_nothing_that_is_asked_was_taught() -> None:
    taught, asked = (
        [one for part in names for sentences in PARTS[part].values() for one in sentences]
        for names in (("lessons", "fifth"), ("questions", "last_questions"))
    )
    names = [
        {entity.name for one in sentences for entity in (example_from_marks(one).head, example_from_marks(one).tail)}
        for sentences in (taught, asked)
    ]
    assert not names[0] & names[1]
    assert (len(taught), len(asked)) == (25, 10)


def test_the_demo_says_what_is_kept_and_loses_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Extractor.open
    monkeypatch.setattr(Extractor, "open", lambda folder: opened(folder, encoder=Words()))
    shown = []
    for _ in range(2):
        demonstrate_extractor(tmp_path / "store")
        shown.append([line for line in capsys.readouterr().out.splitlines() if "seconds" not in line])
    assert shown[0] == shown[1]
    assert "of 8 after for the first four relations; " in shown[0][-4]
    assert "predict --store" in shown[0][-1]
    assert [one.n_relations for one in opened(tmp_path / "store").history()] == [0, 4, 5, 4, 5]


def test_the_summary_has_one_row_per_method_with_and_without_a_corpus(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    lines = {"seqrun": (0.25, 0.5, ""), "erda": (0.5, 0.125, "")}
    records = [
        replace(record, method=method, corpus=corpus, accuracy={"all-seen": [0.9, end]}, forgetting={"all-seen": lost})
        for method, (end, lost, corpus) in lines.items()
    ]
    records += [replace(records[1], corpus="atlas-corpus", accuracy={"all-seen": [0.9, end]}) for end in (0.5, 0.75)]
    table = summarise(records)
    assert [row[0] for row in table.rows] == ["SeqRun", "ERDA", "ERDA + corpus"]
    assert [row[2] for row in table.rows[:2]] == [Summary(25.0, None, 1), Summary(50.0, None, 1)]
    assert table.rows[2][2] == Summary.of((50.0, 75.0))
    assert table.rows[1][3] == Summary(12.5, None, 1)
    assert {method for method, _ in LINES} <= set(METHODS)


@pytest.mark.parametrize(
    ("part", "shown"),
    [([], ["extractor", "methods"]), (["extractor"], ["extractor"]), (["methods"], ["methods"])],
)
def test_a_part_runs_alone(part: list[str], shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("extractor", "methods"):
        monkeypatch.setattr(demo_commands, f"demonstrate_{name}", lambda *_, name=name, **__: called.append(name))
    assert main(["demo", *part]) == 0
    assert called == shown
