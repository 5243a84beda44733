"""`results/`: documents are rebuilt from records, and the records in the repository are valid."""

from dataclasses import replace
from pathlib import Path

import pytest
from erda.benchmark.submission import audit
from toy_runs import toy_record

from erda.benchmark.records import read_record, read_records
from erda.errors import ErdaError
from results import ROOT, add_records, documents

RESULTS = ROOT / "results"


def test_added_records_are_compact_and_audited(tmp_path: Path) -> None:
    toy_record(tmp_path / "runs")
    assert add_records(tmp_path / "runs", tmp_path / "results", "mine") == 1
    kept = tmp_path / "results/mine/toy/1"
    assert [path.name for path in kept.iterdir()] == ["record.json"]
    assert replace(read_record(kept), notes={}) == replace(read_record(tmp_path / "runs/toy/1"), notes={})
    toy_record(tmp_path / "other", evaluate_on="validation")
    with pytest.raises(ErdaError, match="validation"):
        add_records(tmp_path / "other", tmp_path / "results", "other")
    assert not (tmp_path / "results/other").exists()


def test_documents_show_records_and_name_what_is_missing(tmp_path: Path) -> None:
    toy_record(tmp_path / "runs")
    add_records(tmp_path / "runs", tmp_path / "results", "mine")
    (tmp_path / "results/without_records.toml").write_text('[main]\n"ERDA" = { n = 6, all-seen = "28.81 ± 0.45" }\n')
    made = documents(tmp_path / "results")
    assert "toy, 2 shots, toy" in made["docs/beyond.md"]
    main = made["REPRODUCIBILITY.md"].split("## Main table")[1].split("\n## ")[0]
    assert "No records." in main
    assert "| ERDA | 6 | 28.81 ± 0.45 |" in main
    assert "(`ablation`): no records" in made["REPRODUCIBILITY.md"]


def test_every_record_of_the_repository_is_valid_and_all_are_small() -> None:
    found = read_records(RESULTS)
    assert audit(found) == []
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 20_000_000


def test_the_documents_of_the_repository_are_those_of_its_records() -> None:
    for name, text in documents(RESULTS).items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name}: run python benchmarks/results.py"
