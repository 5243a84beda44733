"""Another process changes the relations while this one waits for the lock."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from toy_extractor import open_toy, taught

from erda.app.extractor import Extractor
from erda.app.state import State
from erda.errors import DataError

Act = Callable[[Extractor], object]
NEW = "[[q]] is {{b}}"


def waiting(folder: Path, meanwhile: Act, monkeypatch: pytest.MonkeyPatch) -> Extractor:
    """An extractor that gets the lock after another one has done something."""
    extractor = taught(folder)
    writing = extractor._log.writing

    @contextmanager
    def late(**options: Any) -> Iterator[State]:
        meanwhile(open_toy(folder))
        with writing(**options) as state:
            yield state

    monkeypatch.setattr(extractor._log, "writing", late)
    return extractor


@pytest.mark.parametrize("meanwhile", [lambda one: one.rename("founded by", "x"), lambda one: one.forget("founded by")])
@pytest.mark.parametrize("holds", [True, False])
def test_a_judgement_brings_no_relation_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Act, holds: bool
) -> None:
    extractor = waiting(tmp_path / "mine", meanwhile, monkeypatch)
    with pytest.raises(DataError, match="Unknown relation 'founded by'"):
        extractor.judge(NEW, "founded by", holds=holds)
    assert "founded by" not in [one.id for one in open_toy(tmp_path / "mine").relations]


def test_a_description_is_not_reverted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = waiting(tmp_path / "mine", lambda one: one.describe("founded by", "new words"), monkeypatch)
    extractor.teach("founded by", iter([NEW]))
    assert extractor.version.known("founded by").relation.description == "new words"
    assert [one.id for one in extractor.relations] == ["founded by", "born in", "capital of"]


@pytest.mark.parametrize(
    "teach", [lambda one: one.teach("made of", [NEW]), lambda one: one.teach_many({"made of": iter([NEW])})]
)
def test_two_spellings_of_a_name_are_one_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, teach: Act) -> None:
    extractor = waiting(tmp_path / "mine", lambda one: one.teach("made_of", ["[[r]] of {{b}}"]), monkeypatch)
    teach(extractor)
    assert len(extractor.examples("made_of")) == 2
    assert [one.id for one in extractor.relations] == ["founded by", "born in", "capital of", "made_of"]
