"""Thresholds for a precision: against the obvious computation, kept with a version, and honest where out of reach."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_extractor import FOUNDED, open_toy, taught

from erda.app.evaluation import LEAST_ANSWERS, LEAST_ROWS, Cells, best_threshold, fit, labelled_cells
from erda.errors import DataError


def slow_threshold(confidences: np.ndarray, holds: np.ndarray, precision: float) -> set[int] | None:
    """The answers from some confidence on that have the precision, the most right ones, and no needless wrong ones."""
    found, most = None, -1
    for least in sorted(set(confidences.tolist()), reverse=True):
        answers = confidences >= least
        if answers.sum() >= LEAST_ANSWERS and holds[answers].mean() >= precision and holds[answers].sum() > most:
            found, most = set(np.flatnonzero(answers).tolist()), holds[answers].sum()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_the_threshold_gives_the_most_right_answers_with_the_precision(seed: int) -> None:
    generator = np.random.default_rng(seed)
    confidences = generator.integers(0, 40, size=60) / 40  # with ties
    holds = generator.random(60) < confidences
    threshold = best_threshold(confidences, holds, 0.7)
    expected = slow_threshold(confidences, holds, 0.7)
    assert set(np.flatnonzero(confidences >= threshold).tolist()) == (expected or set())


def test_a_relation_with_few_rows_takes_the_overall_threshold() -> None:
    n = 3 * LEAST_ROWS
    relations = np.repeat([0, 1], n)
    confidences = np.concatenate([np.linspace(0.3, 1, n), np.linspace(0, 0.9, n)])
    holds = np.concatenate([np.ones(n), np.arange(n) >= n - LEAST_ROWS + 1]).astype(bool)
    cells = Cells(relations, confidences, holds, np.arange(2 * n) % 5, 2 * n, 0, in_text=False)
    found = fit(cells, 0.9)
    assert found.own.keys() == {0}
    assert found.own[0] < found.overall < np.inf
    answers = found.answers(cells)
    np.testing.assert_array_equal(answers[relations == 1], confidences[relations == 1] >= found.overall)


def labelled_rows() -> list[dict[str, Any]]:
    rows = [{"text": f"[[a{i}]] was founded by {{{{b{i}}}}} .", "relation": "founded_by"} for i in range(30)]
    rows += [{"text": f"[[a{i}]] was born in {{{{b{i}}}}} .", "relation": "born in"} for i in range(10)]
    rows += [{"text": f"x{i} [[c]] y{i} {{{{d}}}} z{i}", "relation": "no_relation"} for i in range(15)]
    rows += [{"text": f"[[e{i}]] sold {{{{f}}}} w{i}", "relation": "founded by", "holds": False} for i in range(15)]
    return rows


def test_tuning_is_a_version_that_later_teaching_keeps_and_undo_drops(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    tuned = extractor.tune([*labelled_rows(), {"text": FOUNDED[0], "relation": "founded by"}], precision=0.8)
    assert (tuned.version, tuned.n_rows, tuned.n_taught, tuned.in_text) == (3, 70, 1, False)
    assert (tuned.expected.n, tuned.relations["founded by"].expected.n) == (40, 30)
    assert not tuned.relations["born in"].is_own
    assert tuned.relations["born in"].threshold == tuned.threshold
    thresholds = extractor.version.state.thresholds
    assert (thresholds.overall, thresholds.precision, thresholds.version) == (tuned.threshold, 0.8, 2)
    answers = extractor.predict([row["text"] for row in labelled_rows()], top=3)
    cells = [
        (one.confidence >= thresholds.of(one.relation), one.relation, i)
        for i, a in enumerate(answers)
        for one in a.ranked
    ]
    named = [(name, i) for answered, name, i in cells if answered and i < 40]
    right = [(name, i) for name, i in named if (name == "founded by") == (i < 30)]
    assert len(right) >= 0.8 * len(named)
    assert [one.relation is not None for one in answers] == [
        any(one.confidence >= thresholds.of(one.relation) for one in answer.ranked) for answer in answers
    ]
    extractor.teach("founded by", ["[[Intel]] was begun by {{Robert}} ."])
    assert open_toy(tmp_path).version.state.thresholds == thresholds
    extractor.clear_thresholds()
    assert extractor.version.state.thresholds is None
    extractor.undo()
    assert extractor.version.state.thresholds == thresholds


def test_a_counterexample_says_nothing_about_other_relations(tmp_path: Path) -> None:
    cells = labelled_cells(taught(tmp_path).version, labelled_rows())
    assert (len(cells.holds), cells.holds.sum()) == (55 * 3 + 15, 40)


def test_a_precision_out_of_reach_changes_nothing(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    mixed = [{**row, "relation": ("founded by", "no_relation")[i % 2]} for i, row in enumerate(labelled_rows()[:30])]
    more = [{"text": row["text"].replace("[[a", "[[z"), "relation": row["relation"]} for row in mixed]
    with pytest.raises(DataError, match=r"precision of 0\.99: the highest is 0\.\d\d\."):
        extractor.tune([*mixed, *more], precision=0.99)
    with pytest.raises(DataError, match="at least 20"):
        extractor.tune(labelled_rows()[30:40])
    with pytest.raises(DataError, match="between 0 and 1"):
        extractor.tune(labelled_rows(), precision=1.5)
    assert extractor.version.number == 2
    assert extractor.version.state.thresholds is None


def test_annotated_texts_tune_extraction(tmp_path: Path) -> None:
    extractor = taught(tmp_path)
    rows = []
    for i in range(25):
        text = f"a{i} was founded by b{i} ."
        entities = [{"span": [0, len(f"a{i}")]}, {"span": [text.index(f"b{i}"), text.index(f"b{i}") + len(f"b{i}")]}]
        rows.append(
            {"text": text, "entities": entities, "relations": [{"head": 0, "tail": 1, "relation": "founded by"}]}
        )
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells = labelled_cells(extractor.version, tmp_path / "x.jsonl")
    assert (cells.in_text, cells.n_rows, len(cells.holds), cells.holds.sum()) == (True, 25, 25 * 2 * 3, 25)
    tuned = extractor.tune(tmp_path / "x.jsonl", precision=0.3)
    assert tuned.in_text is extractor.version.state.thresholds.in_text is True
    (tmp_path / "x.jsonl").write_text(json.dumps({**rows[0], "relations": [{"head": 2, "tail": 1, "relation": "r"}]}))
    with pytest.raises(DataError, match=r"x\.jsonl:1: .*names entity 2 of 2"):
        extractor.tune(tmp_path / "x.jsonl")
