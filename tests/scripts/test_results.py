"""`results/`: records are added and audited, documents are rebuilt from them, and their commands run."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.records import read_records
from erda.cli.main import build_parser
from erda.cli.settings_options import load_settings
from erda.data.catalogue import DATASETS
from erda.encoders import ENCODERS
from erda.errors import ErdaError
from erda.methods import METHODS
from results import ROOT, add_records, documents


def test_added_records_are_compact_and_audited(tmp_path: Path) -> None:
    results = tmp_path / "results"
    record = toy_record(tmp_path / "runs")
    assert add_records(tmp_path / "runs", results, "mine") == 1
    (found,) = read_records(results / "mine.jsonl").found
    assert found.folder == results / "mine/toy/1"
    assert replace(found.record, notes={}) == replace(record, notes={})
    toy_record(tmp_path / "other", evaluate_on="validation")
    with pytest.raises(ErdaError, match="validation"):
        add_records(tmp_path / "other", results, "other")
    assert not (results / "other.jsonl").exists()
    assert add_records(results / "mine.jsonl", results, "copy") == 1, "a file of records is read as a folder is"


def test_documents_show_records(tmp_path: Path) -> None:
    toy_record(tmp_path / "runs")
    add_records(tmp_path / "runs", tmp_path / "results", "mine")
    assert "toy, 2 shots, toy" in documents(tmp_path / "results")["docs/beyond.md"]


def test_every_record_of_the_repository_is_valid_and_all_are_small() -> None:
    found = read_records(RESULTS)
    assert not found.faults
    assert [fault for one in found.found for fault in audit_record(one.record)] == []
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 20_000_000


COMMANDS = [
    line
    for page in ("REPRODUCIBILITY.md", "docs/beyond.md")
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines()
    if line.startswith("erda ")
]


def test_printed_commands_name_methods_encoders_and_datasets_that_exist() -> None:
    assert len(COMMANDS) > 50
    parser = build_parser()
    for command in COMMANDS:
        _, *words = shlex.split(command)
        options = parser.parse_args(words)
        options.corpus = options.device = None  # those of the reader
        settings = load_settings(options)
        assert {*settings.methods} <= {*METHODS}, command
        assert settings.encoder in ENCODERS, command
        assert settings.encoder_settings.get("adapter", "shipped") in ("", "shipped"), command
        assert settings.dataset in DATASETS, command
