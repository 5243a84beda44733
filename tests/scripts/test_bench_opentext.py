"""The open-text benchmark: its questions, its measures and its cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from erda.methods.open_head import COUNT_WEIGHT, relative_counts
from erda.methods.openness import FREQUENCY, LINE
from erda.types import Entity, Example, Span
from opentext import calibration_error, chance_error, ranked
from opentext_cache import CachedEncoder
from opentext_choose import Unit, fitted_constants, report
from opentext_documents import questions_of


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
    assert chance_error(np.array([1.0, 1.0])) == 0
    few, many = (chance_error(np.full(n, 0.7)) for n in (10, 1000))
    assert 5 < few < 20
    assert many < 3


def test_a_cached_vector_is_found_under_any_relation(tmp_path: Path) -> None:
    """A judged question gets a relation; its vector stays that of the sentence and the spans."""
    example = Example(("Ann", "left", "Rome"), Entity("Ann", Span(0, 1)), Entity("Rome", Span(2, 3)))
    known = {(example.tokens, example.head.span, example.tail.span): np.ones(8)}
    cached = CachedEncoder(tmp_path, "abc", known=known, blanked={})
    assert cached.embed([replace(example, relation="left")]).tolist() == [[1.0] * 8]


def test_constants_are_recovered_from_labels() -> None:
    """Labels drawn from known log odds: the fit returns their constants, whatever the present ones are."""
    draw, units = np.random.default_rng(0), []
    for number in range(40):
        evidence, distinct, n_examples = draw.normal(size=2_000), draw.normal(size=2), 5 if number % 2 else 1
        count = float(relative_counts(np.array(n_examples)))
        chance = 1 / (1 + np.exp(-(0.8 * evidence - 1 + distinct @ (-0.5, 0.2) + 0.4 * count)))
        holds = (draw.random(2_000) < chance).astype(float)
        present = LINE[0] * evidence + LINE[1] + distinct @ FREQUENCY + COUNT_WEIGHT * count
        units.append(Unit(str(number), present, distinct, n_examples, holds))
    assert fitted_constants(units) == pytest.approx([0.8, -1, -0.5, 0.2, 0.4], abs=0.05)
    first, _, *rows = report(units)
    assert first.startswith("LINE, FREQUENCY = (0.8")
    assert len(rows) == 8
