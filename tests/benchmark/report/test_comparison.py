"""Tables of differences: our results beside published ones, and methods compared pairwise."""

import csv
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats
from toy_runs import fewrel_record

from erda.benchmark.experiments import Experiment, group_records
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import Record
from erda.benchmark.report.comparison import compare_all, p_value
from erda.benchmark.report.published import find_published
from erda.benchmark.report.report_files import experiment_section
from erda.benchmark.report.result_tables import comparison_table, published_table, runs_table
from erda.benchmark.report.table_formats import to_csv, to_markdown, to_terminal
from erda.benchmark.statistics import Summary
from erda.errors import RecordError
from erda.methods import METHODS
from erda.settings.runs import default_settings

SEEDS = (100, 110, 120, 130, 140, 150)


def experiment(template: Record, ends: dict[str, list[float]], **changes: Any) -> Experiment:
    records = [
        fewrel_record(template, method, seed, last, **changes)
        for method, values in ends.items()
        for seed, last in zip(SEEDS, values, strict=False)
    ]
    (found,) = group_records(records)
    return found


ENDS = {
    "erda": [0.55, 0.53, 0.57, 0.51, 0.54, 0.56],
    "emr": [0.37, 0.38, 0.41, 0.40, 0.36, 0.35],
    "idlvq-c": [0.40, 0.42, 0.43, 0.39, 0.41, 0.44],
}


def test_our_results_stand_beside_the_papers(template: Record) -> None:
    table = published_table(experiment(template, ENDS))
    erda, emr, idlvq = table.rows
    assert erda[:4] == ("erda", "ERDA", "Tables 1 and 6", 6)
    assert isinstance(erda[4], Summary)
    assert erda[4].mean == pytest.approx(100 * sum(ENDS["erda"]) / 6)
    assert erda[5] == Summary(53.23, 1.49, 6)
    assert erda[6] == "+1.10"
    assert (emr[1], emr[6]) == ("EMR", "+0.32")
    assert idlvq[1] == "IDLVQ-C"
    assert CANDIDATES in table.title
    assert any("n in its denominator" in note for note in table.notes)
    for write in (to_markdown, to_terminal):
        assert "53.23" in write(table)
    assert next(csv.DictReader(to_csv(table).splitlines()))["paper sd"] == "1.49"


def test_lines_without_a_row_of_the_paper_show_a_dash(template: Record) -> None:
    found = experiment(template, {"erda": [0.5]})
    settings = {"method": {**default_settings(METHODS["erda"]), "memory_size": 5}, "encoder": {}, "stream": {}}
    (both,) = group_records([*found.records, fewrel_record(template, "erda", 100, 0.6, settings=settings)])
    table = published_table(both)
    assert table.rows[1][1:4] == (None, None, 1)
    assert table.rows[1][5:] == (None, None)
    assert [row and row.row for row in (find_published(line.first) for line in both.lines)] == ["ERDA", None]


def test_no_published_table_without_published_numbers(template: Record) -> None:
    assert published_table(experiment(template, ENDS, shots=2)) is None
    assert "paper" not in runs_table(experiment(template, ENDS, shots=2)).columns


def test_task_orders_are_compared_run_by_run(template: Record) -> None:
    table = runs_table(experiment(template, ENDS))
    shown = {row[:2]: row[-3:] for row in table.rows}
    assert shown["erda", 110] == ("53.00", "55.59", "stream-1")
    assert shown["emr", 110][1] is None
    assert "paper" not in runs_table(experiment(template, ENDS, order_family="sckd")).columns


def test_the_reference_is_compared_with_each_line(template: Record) -> None:
    found = experiment(template, ENDS)
    table = comparison_table(found, "erda", CANDIDATES)
    assert [row[0] for row in table.rows] == ["emr", "idlvq-c"]
    expected = stats.ttest_rel(ENDS["erda"], ENDS["emr"])
    smaller = stats.ttest_rel(ENDS["erda"], ENDS["idlvq-c"])
    assert 2 * smaller.pvalue < expected.pvalue
    emr = table.rows[0]
    assert emr[1:3] == (6, "+16.50")
    assert emr[3] == "+0.00 to +0.00", "the template's counts per relation are shared"
    assert emr[4] == p_value(expected.pvalue)
    assert emr[5] == p_value(expected.pvalue)  # the larger of two p values is multiplied by one
    assert table.rows[1][5] == p_value(2 * smaller.pvalue)
    assert len(emr) == 6
    half = comparison_table(found, "erda", ALL_SEEN)
    assert half.rows[0][2] == "+8.25"
    assert half.name != table.name


def test_the_default_reference_is_posterior_with_defaults_then_erda_then_the_first_line(template: Record) -> None:
    assert experiment_section(experiment(template, ENDS)).reference == "erda"
    assert experiment_section(experiment(template, {"emr": [0.4], "emar": [0.5]})).reference == "emr"
    assert experiment_section(experiment(template, {"emr": [0.4]})).reference is None
    plain = default_settings(METHODS["posterior"])
    (found,) = group_records(
        fewrel_record(
            template, "posterior", 100, 0.7, settings={"method": {**plain, "score": score}, "encoder": {}, "stream": {}}
        )
        for score in ("lda", plain["score"])
    )
    assert experiment_section(found).reference == "posterior (score=two-covariance)"


def test_lines_run_on_other_streams_are_excluded_and_noted(template: Record) -> None:
    good = experiment(template, ENDS)
    records = [
        replace(one, manifest={**one.manifest, "digest": f"other-{one.seed}"}) if one.method == "emr" else one
        for one in good.records
    ]
    (mixed,) = group_records(records)
    table = comparison_table(mixed, "erda", CANDIDATES)
    assert [row[0] for row in table.rows] == ["idlvq-c"]
    assert table.rows[0][4] == table.rows[0][5]  # a family of one
    said = (
        "Cannot compare 'erda' with 'emr': they were run on different streams (seed 100, manifests stream-1, other-10)."
    )
    assert said in table.notes
    family = compare_all(mixed, "erda", CANDIDATES)
    assert family.refused == (said,)
    assert [one.second for one in family.comparisons] == ["idlvq-c"]


def test_a_single_line_and_an_unknown_reference(template: Record) -> None:
    alone = experiment(template, {"erda": [0.5]})
    table = comparison_table(alone, "erda", CANDIDATES)
    assert table.rows == ()
    assert to_terminal(table)
    with pytest.raises(RecordError, match=r"Unknown line 'erdaa'\. Did you mean 'erda'"):
        comparison_table(alone, "erdaa", CANDIDATES)
