"""Relations that are renamed, merged or described anew equal relations that were taught that way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_extractor import BORN, CAPITAL, FOUNDED, open_toy, scores, taught

from erda.app.extractor import Extractor
from erda.app.state import State
from erda.errors import DataError
from erda.types import Relation

METHODS = pytest.mark.parametrize("method", ["posterior", "seqrun"])


@METHODS
def test_a_renamed_relation_is_as_if_taught_by_that_name(tmp_path: Path, method: str) -> None:
    extractor = taught(tmp_path / "a", method=method)
    before = scores(extractor)
    extractor.rename("founded by", "established by")
    assert [one.id for one in extractor.relations] == ["established by", "born in", "capital of"]
    assert {one.example.relation for one in extractor.examples("established by")} == {"established by"}
    same = open_toy(tmp_path / "b", method=method)
    same.teach("established by", FOUNDED)
    same.teach_many({"born in": BORN, "capital of": CAPITAL})
    np.testing.assert_allclose(scores(extractor), scores(same), rtol=1e-5)
    extractor.undo()
    np.testing.assert_array_equal(scores(extractor), before)


def test_a_merged_relation_is_as_if_taught_as_one(tmp_path: Path) -> None:
    extractor = taught(tmp_path / "a")
    extractor.merge("born in", "founded by")
    assert [one.id for one in extractor.relations] == ["founded by", "capital of"]
    assert [one.number for one in extractor.examples("founded by")] == [0, 1, 2, 3, 4]
    same = open_toy(tmp_path / "b")
    same.teach("founded by", FOUNDED)
    same.teach_many({"founded by": BORN, "capital of": CAPITAL})
    np.testing.assert_allclose(scores(extractor), scores(same), rtol=1e-6)
    extractor.undo()
    assert (len(extractor.relations), len(extractor.examples("founded by"))) == (3, 3)


def test_a_description_is_replaced_and_removed(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    plain = scores(extractor)
    number = extractor.describe("founded by", "who began it")
    assert extractor.relations[0] == Relation("founded by", "founded by", "who began it")
    assert extractor.describe("founded by", " who  began it ") == number, "nothing changed"
    assert not np.allclose(scores(extractor), plain)
    extractor.describe("founded by", "")
    assert extractor.relations[0].description == ""
    np.testing.assert_allclose(scores(extractor), plain, rtol=1e-6)


def test_patterns_stay_when_a_relation_changes(tmp_path: Path) -> None:
    extractor, description = taught(tmp_path), "who began it\n[[X]] was set up by {{Y}}."
    assert extractor.teach("owns", description=description).n_patterns == 1
    told = scores(extractor)
    extractor.rename("owns", "owner")
    extractor.merge("born in", "owner")
    extractor.merge("founded by", "capital of")
    assert [one.description for one in extractor.relations] == ["", description]
    assert extractor.teach("owner", BORN[:1], description=description).n_patterns == 0
    for _ in range(3):
        extractor.undo()
    np.testing.assert_array_equal(scores(extractor), told)
    again = open_toy(tmp_path, relearn=True)
    assert again.relations[-1].description == description
    np.testing.assert_allclose(scores(again), told, rtol=1e-5)
    extractor.merge("owns", "born in")
    assert extractor.version.known("born in").relation.description == "[[X]] was set up by {{Y}}."


@pytest.mark.parametrize("name", ["born in", "born_in", "", "no_relation", "a\x07"])
def test_a_relation_cannot_take_the_name_of_another_or_none(tmp_path: Path, name: str) -> None:
    extractor = taught(tmp_path)
    with pytest.raises(DataError):
        extractor.rename("founded by", name)
    assert extractor.version.number == 2


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
