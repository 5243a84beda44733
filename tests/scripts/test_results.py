"""`results/`: records are added and audited, documents are rebuilt from them, and their commands run."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.records import read_record, read_records, write_record
from erda.cli.main import build_parser
from erda.cli.settings_options import load_settings
from erda.data.catalogue import DATASETS
from erda.encoders import ENCODERS
from erda.errors import ErdaError
from erda.methods import METHODS
from results import ROOT, add_records, documents, main, read_results


def test_added_records_are_compact_and_audited(tmp_path: Path) -> None:
    results = tmp_path / "results"
    record = toy_record(tmp_path / "runs")
    assert add_records(tmp_path / "runs", results, "mine") == 1
    found = read_records(results / "mine.jsonl")
    assert found.folders == (results / "mine/toy/1",)
    assert replace(found.records[0], notes={}) == replace(record, notes={})
    toy_record(tmp_path / "other", evaluate_on="validation")
    with pytest.raises(ErdaError, match="validation"):
        add_records(tmp_path / "other", results, "other")
    assert not (results / "other.jsonl").exists()
    assert add_records(results / "mine.jsonl", results, "copy") == 1, "a file of records is read as a folder is"


def test_a_run_is_replaced_by_one_of_the_same_place_and_others_are_kept(tmp_path: Path) -> None:
    for seed in (1, 2, 10):
        toy_record(tmp_path / "runs", seed=seed)
    add_records(tmp_path / "runs", tmp_path / "results", "mine")
    again = toy_record(tmp_path / "again", seed=2)
    write_record(tmp_path / "again/toy/2", replace(again, device="cuda"))
    add_records(tmp_path / "again", tmp_path / "results", "mine")
    found = read_records(tmp_path / "results/mine.jsonl").records
    assert [(one.seed, one.device) for one in found] == [(1, "cpu"), (10, "cpu"), (2, "cuda")]


def test_runs_of_the_paper_get_a_file_for_each_setting(tmp_path: Path) -> None:
    toy_record(tmp_path / "runs/fewrel-5-shot/plain")
    toy_record(tmp_path / "runs/fewrel-2-shot/plain", shots=3)
    assert add_records(tmp_path / "runs", tmp_path / "results", "paper") == 2
    assert {path.stem for path in (tmp_path / "results/paper").iterdir()} == {"fewrel-2-shot", "fewrel-5-shot"}
    found = read_results(tmp_path / "results")["paper"]
    places = [folder.relative_to(found.directory).as_posix() for folder in found.folders]
    assert places == ["fewrel-2-shot/plain/toy/1", "fewrel-5-shot/plain/toy/1"]


@pytest.mark.parametrize("damage", [lambda line: line.replace(b"0.", b"1.", 1), lambda line: line[:300]])
def test_a_changed_line_is_a_fault_that_names_it(tmp_path: Path, damage: object) -> None:
    for seed in (1, 2):
        toy_record(tmp_path / "runs", seed=seed)
    add_records(tmp_path / "runs", tmp_path, "mine")
    first, second = (tmp_path / "mine.jsonl").read_bytes().splitlines()
    (tmp_path / "mine.jsonl").write_bytes(first + b"\n" + damage(second) + b"\n")
    found = read_records(tmp_path / "mine.jsonl")
    assert [one.seed for one in found.records] == [1]
    assert found.faults[0].startswith(f"{tmp_path / 'mine.jsonl'}:2: ")


def test_documents_mark_records_without_predictions(tmp_path: Path) -> None:
    record = toy_record(tmp_path / "runs")
    add_records(tmp_path / "runs", tmp_path / "results", "mine")
    made = documents(read_results(tmp_path / "results"))
    assert "toy, 2 shots, toy" in made["docs/beyond.md"]
    assert "without predictions" not in made["docs/beyond.md"]
    assert "(1 record)" in made["docs/leaderboard.md"]
    write_record(tmp_path / "runs/toy/1", replace(record, packed={}))
    add_records(tmp_path / "runs", tmp_path / "results", "mine")
    made = documents(read_results(tmp_path / "results"))
    assert "Records without predictions, checked by their counts per relation: all rows." in made["docs/beyond.md"]
    assert "(1 record without predictions)" in made["docs/leaderboard.md"]
    assert read_record(tmp_path / "runs/toy/1").packed == {}


def test_every_record_of_the_repository_is_valid_and_the_documents_are_current(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*.jsonl")) < 30_000_000


COMMANDS = [
    line
    for page in ("REPRODUCIBILITY.md", "docs/beyond.md")
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines()
    if line.startswith("erda run ")
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
        known = ("", "shipped", "minilm-pairs", "mpnet-rank-42")
        assert settings.encoder_settings.get("adapter", "shipped") in known, command
        assert settings.dataset in DATASETS, command
