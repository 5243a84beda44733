"""Pages of results and their commands, which repeat the records."""

import shlex
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from toy_runs import fewrel_record

from documents import rerun_command, results_page
from erda.benchmark.experiments import Line, group_records
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.records import Record, read_records, write_record
from erda.benchmark.report.report_files import experiment_sections
from erda.cli.main import build_parser
from erda.cli.settings_options import load_settings
from erda.methods import METHODS
from erda.settings.runs import Run, default_settings

SEEDS = (100, 110, 120, 130, 140, 150)
ERDA = [0.55, 0.53, 0.57, 0.51, 0.54, 0.56]
EMR = [0.37, 0.38, 0.41, 0.40, 0.36]
LEAD_OVER_EMR = "+15.60"  # points, over the five common streams


def parse(command: str) -> tuple[Run, ...]:
    """Runs of an `erda run` command."""
    program, *words = shlex.split(command)
    assert program == "erda"
    return load_settings(build_parser().parse_args(words)).runs()


def asked(record: Record) -> dict[str, Any]:
    return {one.name: getattr(record, one.name) for one in fields(Run)}


def fewrel(template: Record, method: str = "erda", seed: int = 100, last: float = 0.5, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "corpus": "",
        "seconds": {"learn": [1.0, 2.0, 3.0], "predict": [0.5, 0.5, 0.5]},
        "forgetting": {ALL_SEEN: 0.25, CANDIDATES: 0.125},
        "matrix": {name: [[0.9], [0.8, 0.7], [0.6, 0.5, 0.4]] for name in (ALL_SEEN, CANDIDATES)},
        **changes,
    }
    return fewrel_record(template, method, seed, last, **values)


def line_of(*records: Record) -> Line:
    (experiment,) = group_records(records)
    (line,) = experiment.lines
    return line


def put(directory: Path, *records: Record) -> None:
    for record in records:
        write_record(directory / record.method / str(record.seed), record)


# -- commands ----------------------------------------------------------------------------------------------------------


def test_default_settings_are_not_named(template: Record) -> None:
    line = line_of(*(fewrel(template, seed=seed) for seed in SEEDS))
    command = rerun_command(line)
    assert command == (
        "erda run --dataset fewrel --shots 5 --method erda --encoder bilstm --order-family erda "
        "--seeds 100,110,120,130,140,150 --out runs/again"
    )
    assert [asdict(run) for run in parse(command)] == [asked(record) for record in line.records]


def test_a_command_repeats_every_setting_of_a_run(
    template: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my corpora/wiki").mkdir(parents=True)
    own = {**default_settings(METHODS["erda"]), "memory_size": 3, "augmentation": False, "agreement": "mean"}
    record = fewrel(
        template,
        dataset="atlas",
        shots=3,
        encoder="minilm",
        order_family="sckd",
        seed=200,
        evaluate_on="validation",
        corpus="my corpora/wiki",
        settings={
            "method": {**own, "learning_rate": 2e-5},
            "encoder": {"mode": "markers", "learning_rate": 1e-05, "trained_layers": -1},
            "stream": {"way": 2, "n_tasks": 3},
        },
    )
    command = rerun_command(line_of(record), out=tmp_path / "new runs")
    assert "--set erda.augmentation=false" in command
    assert "--corpus 'my corpora/wiki'" in command
    assert [asdict(run) for run in parse(command)] == [asked(record)]


def test_a_command_names_the_corpus_without_its_path_and_the_device(template: Record) -> None:
    command = rerun_command(line_of(fewrel(template, corpus="/home/someone/corpora/wiki", device="cuda:1")))
    assert "--corpus wiki " in command
    assert "--device cuda:1 " in command
    assert "/home" not in command


def test_all_settings_of_an_unknown_method_are_named(template: Record) -> None:
    assert "--set toy.noise=0.5" in rerun_command(line_of(template))


# -- the page ----------------------------------------------------------------------------------------------------------


def page_of(runs: Path) -> str:
    return results_page(experiment_sections(read_records(runs)), title="Results", made_by="a test")


@pytest.fixture
def runs(template: Record, tmp_path: Path) -> Path:
    """ERDA without a corpus on six streams, EMR on five of them."""
    directory = tmp_path / "runs"
    put(directory, *(fewrel(template, "erda", seed, last) for seed, last in zip(SEEDS, ERDA, strict=True)))
    put(directory, *(fewrel(template, "emr", seed, last) for seed, last in zip(SEEDS, EMR, strict=False)))
    return directory


def test_the_page_shows_the_papers_numbers_ours_and_the_commands(runs: Path, tmp_path: Path) -> None:
    text = page_of(runs)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    table = next(i for i, row in enumerate(rows) if "paper" in row)
    found = {row[0]: dict(zip(rows[table], row, strict=True)) for row in rows[table + 2 :]}
    erda, emr = found["erda"], found["emr"]
    assert (erda["the paper's name"], erda["paper"]) == ("ERDA w.o. DA", "51.51 ± 0.70")
    assert (erda["n"], erda["ours"]) == ("6", "54.33 ± 2.16")
    assert float(erda["95 % over relations"].split(" to ")[0]) <= 100
    assert (erda["lead of the reference"], erda["forgetting"], erda["seconds"]) == ("reference", "12.50 ± 0.00", "7.5")
    assert erda["newest task"] == "40.00 ± 0.00"
    assert (emr["the paper's name"], emr["paper"], emr["n"]) == ("EMR", "37.51 ± 1.53", "5")
    assert emr["lead of the reference"] == LEAD_OVER_EMR
    assert "p (" not in text
    assert "Protocol all-seen, after task 3" in text
    commands = [line for line in text.splitlines() if line.startswith("erda run")]
    assert len(commands) == 2
    assert [len(parse(command)) for command in commands] == [5, 6]
    assert len({shlex.split(command)[-1] for command in commands}) == 2  # a folder each
    assert str(tmp_path) not in text  # no path of this machine
