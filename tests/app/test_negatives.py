"""Counterexamples, unrelated sentences and declarations: stored, moved, taken back, and never learned by the method."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_extractor import BORN, CAPITAL, FOUNDED, open_toy, scores, taught

from erda.answers import Moved
from erda.app.extractor import Extractor
from erda.app.state import Thresholds
from erda.errors import DataError
from erda.text.marks import example_to_marks

AGAINST = ["[[Apple]] hired {{Tim}} .", "{{Elon}} bought [[Twitter]] ."]
APART = ["[[Tuesday]] follows {{Monday}} ."]


def texts(lessons: object) -> list[str]:
    return [example_to_marks(one.example) for one in lessons]


def content(extractor: Extractor) -> object:
    state = extractor.version.state
    return state.known, state.unrelated, state.thresholds


def with_negatives(folder: Path, method: str = "posterior") -> Extractor:
    extractor = taught(folder, method=method)
    extractor.teach("founded by", counterexamples=AGAINST)
    extractor.teach_many({"no_relation": APART})
    return extractor


def test_negatives_are_stored_counted_and_change_no_score(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    before = scores(extractor)
    learned = extractor.version.state.learned
    found = extractor.teach("founded by", counterexamples=AGAINST)
    assert (found.n_examples, found.n_counterexamples, found.n_unrelated) == (0, 2, 0)
    found = extractor.teach_many([], unrelated=APART)
    assert (found.n_examples, found.n_counterexamples, found.n_unrelated) == (0, 0, 1)
    assert extractor.version.state.learned is learned, "nothing was learned again"
    again = open_toy(tmp_path)
    assert content(again) == content(extractor)
    assert texts(again.counterexamples("founded by")) == AGAINST
    assert texts(again.unrelated) == APART
    numbers = [one.number for own in again.version.state.known for one in (*own.lessons, *own.counterexamples)]
    assert sorted([*numbers, again.unrelated[0].number]) == list(range(10))
    np.testing.assert_array_equal(scores(again), before)
    info = again.history()[-1]
    assert (info.n_examples, info.n_counterexamples, info.n_unrelated) == (7, 2, 1)
    assert extractor.teach("founded by", counterexamples=AGAINST).duplicates, "the same again is nothing new"
    assert extractor.version.number == again.version.number


def test_rows_say_whether_their_relation_holds(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    rows = [
        {"text": "[[Ford]] was founded by {{Henry}} .", "relation": "founded_by"},
        {"text": AGAINST[0], "relation": "founded_by", "holds": False},
        {"text": APART[0], "relation": "no_relation"},
    ]
    found = extractor.teach_many(rows)
    assert (found.n_examples, found.n_counterexamples, found.n_unrelated) == (1, 1, 1)
    assert found.new == ()
    with pytest.raises(DataError, match="holds"):
        extractor.teach_many([{**rows[0], "holds": "no"}])
    with pytest.raises(DataError):
        extractor.teach_many([{**rows[2], "holds": False}])


def test_the_latest_judgement_of_a_pair_counts(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    before = scores(extractor)
    found = extractor.judge(FOUNDED[0], "founded by", holds=False)
    assert [(one.before, one.after) for one in found.moved] == [("founded by", "counterexamples of founded by")]
    assert texts(extractor.examples("founded by")) == FOUNDED[1:]
    same = open_toy(tmp_path / "other")
    same.teach("founded by", FOUNDED[1:])
    same.teach_many({"born in": BORN, "capital of": CAPITAL})
    np.testing.assert_allclose(scores(extractor), scores(same), rtol=1e-6)
    found = extractor.judge(FOUNDED[0], "founded_by")
    assert isinstance(found.moved[0], Moved)
    assert extractor.counterexamples("founded by") == ()
    np.testing.assert_allclose(scores(extractor), before, rtol=1e-5)
    extractor.judge(FOUNDED[0], "born in", holds=False)
    assert len(extractor.examples("founded by")) == 3, "an example can be a counterexample of another relation"
    extractor.teach_many([], unrelated=FOUNDED[:1])
    assert texts(extractor.examples("founded by")) == FOUNDED[1:]
    extractor.judge(FOUNDED[0], "founded by")
    assert extractor.unrelated == ()
    with pytest.raises(DataError, match="founded by"):
        extractor.judge(FOUNDED[0], "fonded by")


def test_a_counterexample_never_empties_a_relation_that_needs_examples(tmp_path: Path) -> None:
    extractor = open_toy(tmp_path, method="seqrun")
    extractor.teach_many({"founded by": FOUNDED[:1], "born in": BORN})
    with pytest.raises(DataError, match="only example"):
        extractor.judge(FOUNDED[0], "founded by", holds=False)
    assert len(extractor.examples("founded by")) == 1


def test_every_kind_of_lesson_can_be_taken_back(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    plain = content(extractor)
    extractor = with_negatives(tmp_path / "negatives")
    extractor.take_back(extractor.counterexamples("founded by")[0].number)
    assert texts(extractor.counterexamples("founded by")) == AGAINST[1:]
    extractor.take_back(AGAINST[1])
    extractor.take_back(APART[0])
    assert content(extractor) == plain
    with pytest.raises(DataError):
        extractor.take_back(APART[0])
    extractor.undo()
    assert texts(extractor.unrelated) == APART


def test_edits_move_counterexamples_and_thresholds(tmp_path: Path) -> None:
    extractor = with_negatives(tmp_path)
    state = extractor.version.state
    thresholds = Thresholds(0.5, {"founded by": 0.6, "born in": 0.7}, 0.9, 4)
    extractor._log.learn(replace(state, thresholds=thresholds))
    extractor.rename("founded by", "begun by")
    assert {one.example.relation for one in extractor.counterexamples("begun by")} == {"begun by"}
    assert extractor.version.state.thresholds == replace(thresholds, relations={"begun by": 0.6, "born in": 0.7})
    extractor.describe("begun by", "who began it")
    assert len(extractor.counterexamples("begun by")) == 2
    extractor.merge("begun by", "born in")
    assert {one.example.relation for one in extractor.counterexamples("born in")} == {"born in"}
    assert open_toy(tmp_path).version.state.thresholds == replace(thresholds, relations={"born in": 0.7})
    extractor.prune(keep=1)
    assert content(open_toy(tmp_path)) == content(extractor)


def test_declared_types_are_stored_and_cleared(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    learned = extractor.version.state.learned
    number = extractor.declare("born in", head_types=["PERSON", "ORG"])
    assert extractor.declare("born in", head_types=["PERSON", "ORG"]) == number, "nothing changed"
    assert extractor.version.state.learned is learned
    extractor.rename("born in", "birthplace")
    known = open_toy(tmp_path).version.known("birthplace")
    assert (known.head_types, known.tail_types) == (("PERSON", "ORG"), ())
    extractor.declare("birthplace", head_types=None)
    assert extractor.version.known("birthplace").head_types == ()


def test_a_judgement_decides_every_later_answer_about_its_pair(tmp_path: Path) -> None:
    """Whatever else is taught, and at any threshold: the scores of the toy know nothing of counterexamples."""
    extractor, wrong = taught(tmp_path), "[[Tesla]] was founded by {{Rosa}} ."
    assert extractor.predict(wrong).relation == "founded by"
    extractor.judge(wrong, "founded by", holds=False)
    extractor.teach("founded by", ["[[Acme]] was founded by {{Rosa}} ."])
    answer = extractor.predict(wrong, min_confidence=0.0)
    assert set(answer.relations) == {"born in", "capital of"}
    assert {one.relation: one.confidence for one in answer.ranked}["founded by"] == 0
    text = "Tesla was founded by Rosa . Paris is the capital of France ."
    found = extractor.extract(text, ["Tesla", "Rosa", "Paris", "France"], min_confidence=0.0)
    said = {(one.head_name, one.tail_name): one.relations for one in found.answers}
    assert "founded by" not in said["Tesla", "Rosa"]
    assert said["Paris", "France"] == ("capital of",), "a taught pair has the relations that it was taught with"
    assert extractor.predict(CAPITAL[0], min_confidence=1.0).relations == ("capital of",)
    extractor.teach_many({"no_relation": ["[[Rome]] is the capital of {{Oslo}} ."]})
    assert extractor.predict("[[Rome]] is the capital of {{Oslo}} .", min_confidence=0.0).relations == ()
    assert extractor.explain(CAPITAL[0]).answer == extractor.predict(CAPITAL[0])
    assert any(one.change < -0.01 for one in extractor.explain(wrong).words), "words are explained by the scores"
    extractor.judge(wrong, "founded by")
    assert extractor.predict(wrong).confidence == 1
