"""Metrics of both protocols, checked against a slow loop and hand-computed values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erda.benchmark.measures import ALL_SEEN, CANDIDATES, TestAnswers, forgetting, mark
from erda.benchmark.records import measured
from erda.errors import DataError, StreamError
from erda.types import Entity, Example, Predictions, Span, TestSet


def questions(n: int) -> tuple[Example, ...]:
    return tuple(
        Example(("a", "b", "c"), Entity("a", Span(0, 1)), Entity("c", Span(2, 3)), id=str(i)) for i in range(n)
    )


def held_apart(gold: list[str], candidates: list[list[str]] | None = None) -> TestSet:
    lists = None if candidates is None else tuple(tuple(names) for names in candidates)
    return TestSet(questions(len(gold)), tuple(gold), lists)


def mark_slowly(predictions: Predictions, test: TestSet, protocol: str) -> tuple[list[bool], list[float], list[bool]]:
    """Mark one example and one rival at a time."""
    right, guess, fallback = [], [], []
    for row, gold in enumerate(test.gold):
        score = dict(zip(predictions.relations, predictions.scores[row], strict=True))
        rivals = set(predictions.relations) - {gold}
        fell_back = False
        if protocol == CANDIDATES:
            learned = {name for name in test.candidates[row] if name in score} - {gold}
            fell_back = not learned
            rivals = learned or rivals
        right.append(math.isfinite(score[gold]) and all(score[gold] > score[name] for name in rivals))
        guess.append(1 / (1 + len(rivals)))
        fallback.append(fell_back)
    return right, guess, fallback


SCORES = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, math.nan])  # few values, so that ties are common


@settings(max_examples=80)
@given(st.data())
def test_marks_equal_the_slow_loop(data: st.DataObject) -> None:
    n_relations = data.draw(st.integers(1, 6))
    n = data.draw(st.integers(1, 8))
    learned = tuple(f"r{i}" for i in range(n_relations))
    everything = [*learned, "unlearned-1", "unlearned-2"]
    gold = data.draw(st.lists(st.sampled_from(learned), min_size=n, max_size=n))
    lists = data.draw(st.lists(st.lists(st.sampled_from(everything), max_size=5), min_size=n, max_size=n))
    scores = np.array(data.draw(st.lists(SCORES, min_size=n * n_relations, max_size=n * n_relations)), dtype=np.float32)
    predictions = Predictions(learned, scores.reshape(n, n_relations))
    test = held_apart(gold, lists)
    marks = mark(predictions, TestAnswers.of(test))
    for protocol in (ALL_SEEN, CANDIDATES):
        right, guess, fallback = mark_slowly(predictions, test, protocol)
        assert marks.right[protocol].tolist() == right
        assert marks.guess[protocol] == pytest.approx(guess)
        if protocol == CANDIDATES:
            assert marks.fallback.tolist() == fallback


def test_hand_computed_measures() -> None:
    predictions = Predictions(
        ("born in", "capital of", "part of"),
        np.array(
            [
                [0.9, 0.1, 0.2],  # right by both
                [0.5, 0.6, 0.1],  # 'capital of' scores higher, but only 'part of' is listed
                [0.5, 0.5, 0.1],  # a tie with a listed rival: wrong by both
                [0.2, 0.9, 0.1],  # no listed relation is learned: falls back to all-seen, wrong
            ],
            dtype=np.float32,
        ),
    )
    test = held_apart(["born in"] * 4, [["born in", "part of"], ["part of"], ["capital of"], ["unlearned", "born in"]])
    found = measured([mark(predictions, TestAnswers.of(test))], [4])
    assert found["accuracy"] == {ALL_SEEN: [0.25], CANDIDATES: [0.5]}
    assert found["chance"][ALL_SEEN] == pytest.approx([1 / 3])
    assert found["chance"][CANDIDATES] == pytest.approx([(1 / 2 + 1 / 2 + 1 / 2 + 1 / 3) / 4])
    assert found["n_fallback"] == [1]
    assert found["n_test"] == [4]


def test_micro_weights_examples_and_macro_weights_tasks_equally() -> None:
    relations = ("a", "b")
    answers = TestAnswers.of(held_apart(["a"] * 3), held_apart(["b"]))
    marks = [mark(Predictions(relations, np.array([[1.0, 0.0]] * n)), answers.first(n)) for n in (3, 4)]
    found = measured(marks, [3, 1])
    assert found["accuracy"] == {ALL_SEEN: [1.0, 0.75], CANDIDATES: None}
    assert found["macro"] == {ALL_SEEN: [1.0, 0.5], CANDIDATES: None}
    assert found["matrix"] == {ALL_SEEN: [[1.0], [1.0, 0.0]], CANDIDATES: None}


def test_a_protocol_is_measured_only_if_every_test_supports_it() -> None:
    relations = ("a", "b")
    predictions = Predictions(relations, np.array([[1.0, 0.0]] * 2))
    with_lists, without = held_apart(["a"], [["b"]]), held_apart(["a"])
    assert set(mark(predictions, TestAnswers.of(with_lists, with_lists)).right) == {ALL_SEEN, CANDIDATES}
    assert set(mark(predictions, TestAnswers.of(with_lists, without)).right) == {ALL_SEEN}


def test_unlearned_relations_and_a_wrong_number_of_predictions_are_rejected() -> None:
    for relation, n_predictions, error in (("spouse", 1, DataError), ("a", 2, StreamError)):
        with pytest.raises(error):
            mark(Predictions(("a",), np.zeros((n_predictions, 1))), TestAnswers.of(held_apart([relation])))


def test_hand_computed_forgetting() -> None:
    matrix = [[0.8], [0.9, 0.6], [0.5, 0.7, 1.0]]
    # task 1: best of 0.8 and 0.9, minus 0.5; task 2: 0.6 minus 0.7
    assert forgetting(matrix) == pytest.approx((0.4 - 0.1) / 2)
    assert forgetting([[0.8]]) is None
    assert forgetting([[0.8], [0.8, 0.1]]) == 0.0
