"""The demo of the extractor: its sentences can be read, and it may be given twice."""

from pathlib import Path

import pytest
from toy_extractor import Words

from erda.app.demo import FIFTH, LAST_QUESTIONS, LESSONS, QUESTIONS, demonstrate
from erda.app.extractor import Extractor
from erda.text.marks import example_from_marks


def test_nothing_that_is_asked_was_taught() -> None:
    taught = [one for sentences in (*LESSONS.values(), *FIFTH.values()) for one in sentences]
    asked = [one for sentences in (*QUESTIONS.values(), *LAST_QUESTIONS.values()) for one in sentences]
    names = [
        {entity.name for one in sentences for entity in (example_from_marks(one).head, example_from_marks(one).tail)}
        for sentences in (taught, asked)
    ]
    assert not names[0] & names[1]
    assert (len(taught), len(asked)) == (25, 10)


def test_the_demo_says_what_is_kept_and_loses_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Extractor.open
    monkeypatch.setattr(Extractor, "open", lambda folder: opened(folder, encoder=Words()))
    shown: list[str] = []
    demonstrate(tmp_path / "store", show=shown.append)
    assert "of 8 after for the first four relations; " in shown[-4]
    assert "| erda predict --store" in shown[-1]
    first = list(shown)
    demonstrate(tmp_path / "store", show=shown.append)
    assert [line for line in shown[len(first) :] if "seconds" not in line] == [
        line for line in first if "seconds" not in line
    ]
    assert [one.n_relations for one in opened(tmp_path / "store").history()] == [0, 4, 5, 4, 5]
