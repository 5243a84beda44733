"""The demo: its sentences can be read, and the extractor may be taught twice."""

from pathlib import Path

import pytest
from toy_extractor import Words

from erda.app.extractor import Extractor
from erda.cli.demo_commands import PARTS, demonstrate_extractor
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
    assert "of 8 after for the first four relations; " in shown[0][-3]
    assert "predict --store" in shown[0][-1]
    history = opened(tmp_path / "store").history()
    assert [one.n_relations for one in history] == [0, 4, 5], "the second demo leaves it as it is"
