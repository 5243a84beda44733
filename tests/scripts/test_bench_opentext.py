"""The open-text benchmark: folds, questions, vectors, measures and records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import entities
import folds
import opentext
import opentext_data as data
import review
from erda.answers import Answer, TextPlace
from erda.errors import DataError
from erda.types import Entity, Example, Span
from opentext_score import Answered, Taught, answers, calibration_error, ranked, reliability
from toy_world import toy_encoder, toy_example, toy_relation

EXAMPLE = Example(("Ann", "left", "Rome"), Entity("Ann", Span(0, 1)), Entity("Rome", Span(2, 3)))


def test_a_fold_holds_out_every_inverse() -> None:
    """A relation and its inverse are never on different sides; the halves of Re-DocRED share no relation."""
    written = json.loads(folds.FILE.read_text())
    assert written["inverses"] == {name: list(others) for name, others in folds.INVERSES.items()}
    for fold in written["folds"].values():
        assert fold["held_out"] == folds.with_inverses(fold["relations"])
        assert set(fold["held_out"]) >= set(fold["relations"])
    assert not set(written["folds"]["redocred-A"]["held_out"]) & set(written["folds"]["redocred-B"]["held_out"])
    assert len(written["folds"]["fewrel-40"]["relations"]) == 40
    assert folds.with_inverses(["P25"]) == ["P22", "P25", "P40"]
    assert folds.groups_of({"P40", "P25", "P26"}) == [["P25", "P40"], ["P26"]]


def test_questions_are_ordered_pairs_of_a_sentence() -> None:
    """Evidence makes a pair positive; a relation stated elsewhere is ignored; overlapping mentions are not asked."""
    mention = {"name": "", "sent_id": 0}
    document = {
        "sents": [["Ann", "was", "born", "in", "Rome", "City"], ["Ann", "died"]],
        "vertexSet": [
            [{**mention, "pos": [0, 1]}, {**mention, "pos": [0, 1], "sent_id": 1}],
            [{**mention, "pos": [4, 6]}],
            [{**mention, "pos": [4, 5]}],
        ],
        "labels": [
            {"r": "born", "h": 0, "t": 1, "evidence": [0]},
            {"r": "died", "h": 0, "t": 1, "evidence": [1]},
            {"r": "lived", "h": 0, "t": 2, "evidence": []},
        ],
    }
    found = {(one.example.head.name, one.example.tail.name): one for one in data.questions_of([document])}
    assert set(found) == {("Ann", "Rome City"), ("Rome City", "Ann"), ("Ann", "Rome"), ("Rome", "Ann")}
    assert found["Ann", "Rome City"].holds == {"born"}
    assert found["Ann", "Rome City"].ignored == {"died"}
    assert found["Ann", "Rome"].ignored == {"lived"}
    assert not found["Rome City", "Ann"].holds


def test_hand_written_sentences() -> None:
    """Five sentences teach each relation; none of the others is among them."""
    kinds = Counter(kind for kind, _ in data.denied())
    assert kinds == {"taught": 100, "stated": 40, "denied": 35, "doubted": 30, "reversed": 35}
    assert set(Counter(one.relation for kind, one in data.denied() if kind == "taught").values()) == {5}
    assert len({one.tokens for _, one in data.denied()}) == 240
    counts = [Counter(one.relation for one in own) for own in data.domains().values()]
    assert [(len(own), *set(own.values())) for own in counts] == [(10, 14), (12, 14), (10, 14), (10, 14)]


def test_vectors_are_found_by_sentence_and_rejected_with_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judged question gets a relation; its vector stays that of the sentence and the spans."""
    swapped = data.swapped(EXAMPLE)
    data.part.cache_clear()
    monkeypatch.setattr(data, "PARTS", {"names": lambda: [EXAMPLE], "some": lambda: [swapped, EXAMPLE]})
    with pytest.raises(DataError, match=r"needs 3 finite vectors"):
        data.pack(tmp_path, np.ones((2, 4)), encoder="toy", fingerprint="abc")
    data.pack(tmp_path, np.eye(4)[:3], encoder="toy", fingerprint="abc")
    encoder = data.VectorEncoder(tmp_path)
    assert encoder.embed([EXAMPLE], blanked=True).argmax() == 0
    with pytest.raises(DataError, match="no vector of this sentence"):
        encoder.embed([EXAMPLE])
    encoder.load("some")
    assert encoder.embed([replace(EXAMPLE, relation="left"), swapped]).argmax(axis=1).tolist() == [2, 1]
    data.part.cache_clear()
    monkeypatch.setitem(data.PARTS, "some", lambda: [EXAMPLE, EXAMPLE])
    with pytest.raises(DataError, match="computed from other data"):
        encoder.load("some")
    data.part.cache_clear()


def test_measures_ignore_what_is_ignored() -> None:
    precision, at_half = ranked(np.array([5.0, 4, 3, 2, 1]), np.array([-1, 1, 0, 1, 0]))
    assert precision == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert at_half == 100
    assert calibration_error(np.array([0.9, 0.9, 0.9, 0.9]), np.array([1, 1, 1, 0])) == pytest.approx(15)
    assert calibration_error(np.array([0.9, 0.9]), np.array([1, 0]), np.array([9, 1])) == pytest.approx(0)
    assert reliability(np.array([0.95, 0.95, 0.1]), np.array([1, 0, 0])) == [[1, 0.1, 0], [2, 0.95, 0.5]]
    found = Answered(np.array([[0.3, 0.1], [0.6, 0.1]]), np.zeros((2, 2), dtype=bool))
    assert [opentext.best_at(found, rate).tolist() for rate in (0.5, 0.85)] == [[-1, 0], [0, 0]]


def test_facts_are_right_exactly_or_by_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fact that the document states by another sentence does not count; boundaries decide only exact matches."""
    monkeypatch.setattr(entities, "types", dict)
    words = ["Ann", "Lee", "was", "born", "in", "Rome", "."]
    mentions = [[{"sent_id": 0, "pos": pos, "type": "PER"}] for pos in ([0, 2], [5, 6])]
    labels = [{"h": 0, "t": 1, "r": "born", "evidence": [0]}, {"h": 0, "t": 1, "r": "died", "evidence": []}]
    document = entities.annotated(0, {"sents": [words], "vertexSet": mentions, "labels": labels})
    assert document.text[:24] == "Ann Lee was born in Rome"
    answers = [
        Answer(EXAMPLE, relation, (), TextPlace(start, 7, 20, 24), (relation,))
        for start, relation in ((4, "born"), (0, "died"), (0, "left"))
    ]
    assert document.score(answers, ["born", "died", "left"]).tolist() == [[0, 2, 0, 1], [1, 2, 1, 1]]
    gold = review.Gold([document], ["born"])
    assert dict(gold.holds) == {("0 0 0", "0 0 1"): {"born"}}
    assert not gold.ignored
    assert review.Gold([document], ["died"]).ignored == {frozenset(("0 0 0", "0 0 1"))}
    exact = [Answer(EXAMPLE, "born", (), TextPlace(0, 7, 20, 24), ("born",))]
    assert document.score(exact, ["born"]).tolist() == [[1, 1, 1, 1]] * 2


def test_known_and_other_relations_are_asked_and_taught_sentences_are_not() -> None:
    relations = {one.id: one for one in (toy_relation(number) for number in range(4))}
    own = {name: [toy_example(number, row) for row in range(12)] for number, name in enumerate(relations)}
    questions = [opentext._asked(one, {name}) for name, some in own.items() for one in some]
    pool = opentext.Pool(relations, own, questions)
    row, given = opentext.cell(toy_encoder(), pool, 2, 3, seed=0)
    assert row["forced choice"] > 50
    assert row["AUROC"] > 50
    assert row["none answered"] is None
    known, weights = given[3:]
    assert weights @ known == pytest.approx(weights @ (1 - known)), "half of the questions are known"
    assert opentext.cell(toy_encoder(), pool, 4, 3, seed=0)[0]["AUROC"] is None
    taught = [Taught(relations[name], own[name][:3]) for name in relations]
    found = answers(toy_encoder(), taught, next(iter(own.values())))
    assert found.holds.sum(axis=1).max() <= 1
    assert found.best.shape == (12,)


def test_records_replace_those_of_the_same_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opentext, "RESULTS", tmp_path)
    for accuracy in (1.0, 2.0):
        opentext.keep("nota", [{"none": 15, "accuracy": accuracy}], {"encoder": "toy", "fold": "nota-16"})
    opentext.keep("nota", [{"none": 50, "accuracy": 3.0}], {"encoder": "toy", "fold": "nota-16"})
    lines = (tmp_path / "nota.jsonl").read_text().splitlines()
    assert [json.loads(line)["accuracy"] for line in lines] == [2.0, 3.0]


def test_a_missing_folder_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert opentext.main(["denied", "--encoder", str(tmp_path / "none")]) == 2
    assert "holds no vectors. Run: python benchmarks/opentext.py embed" in capsys.readouterr().err
