"""The open-text benchmark: its questions, its measures and the parts of its score, against slow or known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from erda.encoders import build_encoder
from erda.types import Entity, Example, Span
from opentext import calibration_error, ranked
from opentext_cache import CachedEncoder
from opentext_documents import questions_of
from opentext_score import Pairs, Unlabelled, compete, correction, gap_odds, type_odds


def test_questions_are_ordered_pairs_of_a_sentence() -> None:
    """Evidence makes a pair positive; a relation stated elsewhere is ignored; overlapping mentions are not asked."""
    mention = {"name": "", "sent_id": 0}
    document = {
        "sents": [["Ann", "was", "born", "in", "Rome", "City"], ["Ann", "died"]],
        "vertexSet": [
            [{**mention, "pos": [0, 1], "type": "PER"}, {**mention, "pos": [0, 1], "type": "PER", "sent_id": 1}],
            [{**mention, "pos": [4, 6], "type": "LOC"}],
            [{**mention, "pos": [4, 5], "type": "LOC"}],
        ],
        "labels": [
            {"r": "born", "h": 0, "t": 1, "evidence": [0]},
            {"r": "died", "h": 0, "t": 1, "evidence": [1]},
            {"r": "lived", "h": 0, "t": 2, "evidence": []},
        ],
    }
    found = {(one.example.head.name, one.example.tail.name): one for one in questions_of([document])}
    assert set(found) == {("Ann", "Rome City"), ("Rome City", "Ann"), ("Ann", "Rome"), ("Rome", "Ann")}
    assert found["Ann", "Rome City"].holds == {"born"}
    assert found["Ann", "Rome City"].ignored == {"died"}
    assert found["Ann", "Rome"].ignored == {"lived"}
    assert not found["Rome City", "Ann"].holds
    assert found["Ann", "Rome City"].types == ("PER", "LOC")


def test_measures_ignore_what_is_ignored() -> None:
    precision, at_half = ranked(np.array([5.0, 4, 3, 2, 1]), np.array([-1, 1, 0, 1, 0]))
    assert precision == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert at_half == 100
    assert calibration_error(np.array([0.9, 0.9, 0.9, 0.9]), np.array([1, 1, 1, 0])) == pytest.approx(15)


def test_the_best_pair_of_a_sentence_keeps_its_score() -> None:
    scores = np.array([1.0, 3.0, 2.0, 5.0])
    assert compete(scores, np.array([7, 7, 7, 9])).tolist() == [-1, 3, 1, 5]


def some_pairs(n: int, seed: int, *, head: int = 1, gap: int = 3) -> Pairs:
    vectors = np.random.default_rng(seed).normal(size=(n, 8))
    types = np.tile([head, 2], (n, 1))
    return Pairs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), types, np.tile([0, gap], (n, 1)))


@pytest.fixture
def unlabelled() -> Unlabelled:
    sample = some_pairs(50, 0) + some_pairs(50, 1, head=3, gap=12)
    return Unlabelled.of(sample.vectors, sample, np.eye(4))


def test_types_and_gaps_of_the_examples_are_evidence(unlabelled: Unlabelled) -> None:
    """Known types and gaps count for a relation, others against it, an unknown type not at all."""
    examples = some_pairs(5, 2)
    like, unlike, unknown = (some_pairs(1, 3, head=head, gap=gap) for head, gap in ((1, 3), (3, 12), (0, 3)))
    tail = type_odds(examples, unlabelled, unknown)[0]
    assert type_odds(examples, unlabelled, unlike)[0] < tail < type_odds(examples, unlabelled, like)[0]
    assert gap_odds(examples, unlabelled, unlike)[0] < 0 < gap_odds(examples, unlabelled, like)[0]


def test_the_correction_is_a_logistic_regression() -> None:
    """Newton steps on the dual end where a general optimiser ends on the primal."""
    from scipy.optimize import minimize

    draw = np.random.default_rng(0)
    rows, offsets = draw.normal(size=(30, 6)), draw.normal(size=30)
    holds = (rows[:, 0] + draw.normal(size=30) > 0).astype(float)

    def loss(weights: np.ndarray) -> float:
        logits = offsets + rows @ weights
        return float((np.logaddexp(0, logits) - holds * logits).sum() + 0.03 / 2 * weights @ weights)

    slow = minimize(loss, np.zeros(6), tol=1e-10).x
    assert correction(rows, offsets, holds) == pytest.approx(slow, abs=1e-3)


def test_a_cached_vector_is_found_under_any_relation() -> None:
    """A judged question gets a relation; its vector stays that of the sentence and the spans."""
    example = Example(("Ann", "left", "Rome"), Entity("Ann", Span(0, 1)), Entity("Rome", Span(2, 3)))
    cached = CachedEncoder([example], np.ones((1, 768)), build_encoder("minilm"))
    assert cached.embed([replace(example, relation="left")]).tolist() == [[1.0] * 768]
