from dataclasses import replace
from pathlib import Path

from toy_runs import toy_record

from erda.benchmark.method_demo import LINES, summarise
from erda.benchmark.statistics import Summary
from erda.methods import METHODS


def test_the_summary_has_one_row_per_method_with_and_without_a_corpus(tmp_path: Path) -> None:
    record = toy_record(tmp_path)
    lines = {"seqrun": (0.25, 0.5, ""), "erda": (0.5, 0.125, "")}
    records = [
        replace(record, method=method, corpus=corpus, accuracy={"all-seen": [0.9, end]}, forgetting={"all-seen": lost})
        for method, (end, lost, corpus) in lines.items()
    ]
    records += [replace(records[1], corpus="atlas-corpus", accuracy={"all-seen": [0.9, end]}) for end in (0.5, 0.75)]
    table = summarise(records)
    assert [row[0] for row in table.rows] == ["SeqRun", "ERDA", "ERDA + corpus"]
    assert [row[2] for row in table.rows[:2]] == [Summary(25.0, None, 1), Summary(50.0, None, 1)]
    assert table.rows[2][2] == Summary.of((50.0, 75.0))
    assert table.rows[1][3] == Summary(12.5, None, 1)


def test_every_row_of_the_summary_names_an_existing_method() -> None:
    assert {method for method, _ in LINES} <= set(METHODS)
