"""Records -> lines of one table: records with the most common settings; notes count the others."""

from dataclasses import replace
from typing import Any

import pytest

from erda.benchmark.experiments import make_lines
from erda.benchmark.records import Record
from erda.methods import METHODS
from erda.settings.runs import default_settings

DEFAULTS = default_settings(METHODS["erda"])


def smoke(record: Record, **changes: Any) -> Record:
    """The same record, cut after two tasks."""
    cut = {name: values and values[:2] for name, values in record.accuracy.items()}
    settings = {**record.settings, "stream": {"n_tasks": 2}}
    return replace(record, order=record.order[:2], accuracy=cut, settings=settings, **changes)


def erda(record: Record, *, corpus: str = "", seed: int = 1, **settings: object) -> Record:
    own = {"method": settings, "encoder": {}, "stream": {}}
    return replace(record, method="erda", corpus=corpus, seed=seed, settings=own)


def seeds(rows: dict[str, list[Record]]) -> tuple[dict[str, list[int]], list[str]]:
    """Seeds of the lines made of these records, and the notes."""
    lines, notes = make_lines(rows)
    return {line.label: [record.seed for record in line.records] for line in lines}, notes


def test_all_lines_of_a_table_have_the_most_common_shape(template: Record) -> None:
    rows = {
        "A": [replace(template, seed=seed) for seed in (1, 2, 3)],
        "B": [smoke(template, seed=1), smoke(template, seed=2), replace(template, seed=3)],
        "C": [smoke(template)],
    }
    found, notes = seeds(rows)
    assert found == {"A": [1, 2, 3], "B": [3]}
    assert [note[0] + note[-2] for note in notes] == ["B2", "C1"]


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "atlas"},
        {"evaluate_on": "validation"},
        {"encoder": "minilm"},
        {"shots": 7},
        {"settings": {"method": {"noise": 0.5}, "encoder": {"mode": "x"}}},
        {"settings": {"method": {"noise": 0.0}}},
    ],
)
def test_records_with_other_settings_are_excluded_and_counted(template: Record, changes: dict[str, Any]) -> None:
    rows = {"A": [replace(template, seed=2), replace(template, seed=3), replace(template, seed=1, **changes)]}
    found, notes = seeds(rows)
    assert (found, len(notes)) == ({"A": [2, 3]}, 1)


def test_a_setting_newer_than_a_record_has_its_default(template: Record) -> None:
    older = {name: value for name, value in DEFAULTS.items() if name != "n_rehearsed"}
    assert older != DEFAULTS
    rows = {"A": [erda(template, seed=1, **older), erda(template, seed=2, **DEFAULTS)]}
    assert seeds(rows) == ({"A": [1, 2]}, [])
    rows["A"].append(erda(template, seed=3, **{**DEFAULTS, "n_rehearsed": 3}))
    found, notes = seeds(rows)
    assert (found, len(notes)) == ({"A": [1, 2]}, 1)


def test_a_corpus_is_identified_by_its_folder_name(template: Record) -> None:
    rows = {"A": [erda(template, corpus="/a/wiki", seed=1), erda(template, corpus="b/wiki", seed=2)]}
    assert seeds(rows) == ({"A": [1, 2]}, [])
    rows["A"] += [erda(template, corpus="b/news", seed=3), erda(template, seed=4)]
    found, notes = seeds(rows)
    assert (found, len(notes)) == ({"A": [1, 2]}, 1)
