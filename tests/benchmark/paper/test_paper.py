"""`erda paper`: runs of the tables and their sections in a report."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from toy_paper import CHANGES, FOLDER, SEQRUN, SMALL, TINY, WITHOUT_AUGMENTATION, small_table

from erda.benchmark.paper import paper_plan as plan_module
from erda.benchmark.paper.paper_plan import run_paper
from erda.benchmark.paper.paper_tables import paper_layout
from erda.benchmark.records import read_records
from erda.cli.main import main
from erda.errors import ModelError
from erda.files import sealed, write_json
from erda.settings.load import given_values
from erda.settings.runs import Run

TSNE = small_table("tsne", WITHOUT_AUGMENTATION, settings={"n_tasks": 2}, seeds=(100,))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of the main table (two rows) and of `tsne` (one row) on two small tasks."""
    out = tmp_path_factory.mktemp("paper")
    result = run_paper([small_table("main")], out=out, changes=CHANGES, show=False)
    assert (result.n_new, result.n_found, result.faults) == (2, 0, ())
    result = run_paper([TSNE], out=out, changes=given_values(TINY), show=False)
    assert (result.n_new, result.n_found, result.faults) == (1, 0, ())
    return out


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    """A copy for tests that change it."""
    return shutil.copytree(done, tmp_path / "paper")


# -- running -----------------------------------------------------------------------------------------------------------


def test_finished_runs_are_not_repeated_and_need_no_weights(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(run: Run) -> None:
        raise ModelError("no weights here")

    monkeypatch.setattr(plan_module, "build_run_encoder", never)
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*.json") if path.name == "record.json"}
    again = run_paper([small_table("main")], out=done, changes=CHANGES, show=False)
    assert (again.n_new, again.n_found) == (0, 2)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_truncated_record_is_a_fault_and_the_other_runs_continue(copied: Path) -> None:
    record = copied / FOLDER / "plain/seqrun/100/record.json"
    record.write_text(record.read_text()[:200])
    result = run_paper([small_table("main")], out=copied, changes=CHANGES, show=False)
    assert (result.n_new, result.n_found) == (0, 1)
    assert len(result.faults) == 1
    assert "is not valid JSON" in result.faults[0]
    assert "Delete it and run again" in result.faults[0]


def test_a_row_with_other_settings_is_rejected_and_the_others_continue(copied: Path) -> None:
    """The whole row is rejected, including streams without a record."""
    other = replace(SEQRUN, settings={"batch_size": 3})
    changes = given_values({**SMALL, "seeds": 110})
    result = run_paper([small_table("main", other, WITHOUT_AUGMENTATION)], out=copied, changes=changes, show=False)
    assert (result.n_new, result.n_found) == (1, 0)
    assert len(result.faults) == 1
    assert result.faults[0].startswith(f"seqrun: {copied / FOLDER}/plain/seqrun/100 holds")
    assert "method.batch_size: " in result.faults[0]


@pytest.mark.usefixtures("unpainted")
def test_the_command_lists_tables_runs_one_and_writes_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "--list", "scaling", "bert-tacred"]) == 0
    listed = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert listed[0] == ["bert-tacred", "base-tacred-5", "TACRED 5-way 5-shot with a base-size transformer (MPNet)"]
    assert [line[1] for line in listed if line[0] == "scaling"] == ["scaling-8", "scaling-20", "scaling-40"]
    sets = [f"--set={name}={value}" for name, value in SMALL.items()]
    out = tmp_path / "out"
    status = main(["paper", "orders", "--dataset", "atlas", "--seeds", "100", *sets, "--out", str(out)])
    printed = capsys.readouterr()
    assert status == 0
    assert "Runs done: 2; already there: 0; faults: 0." in printed.out
    assert (out / "report/index.html").exists()
    ended = [line.split(": ")[1] for line in printed.err.splitlines() if line.endswith(": done")]
    assert sorted(ended) == ["erda/100", "idlvq-c/100"]


# -- sections ----------------------------------------------------------------------------------------------


def on_fewrel(out: Path) -> None:
    """Change the dataset of the records to that of the plan."""
    for folder in list(out.glob("*-on-atlas")):
        moved = folder.rename(out / folder.name.removesuffix("-on-atlas"))
        for path in moved.rglob("record.json"):
            write_json(path, sealed({**json.loads(path.read_text()), "dataset": "fewrel"}))


def test_sections_follow_the_plan_and_other_records_come_last(copied: Path) -> None:
    on_fewrel(copied)
    shutil.copytree(copied / "fewrel-5-shot/plain", copied / "mine")
    sections = paper_layout(read_records(copied))
    assert [section.name for section in sections[:3]] == ["main", "variance", "tsne"]
    first = sections[0]
    assert first.title == "Main table: FewRel 10-way 5-shot, BiLSTM"
    assert [line.label for line in first.experiment.lines] == ["SeqRun", "ERDA w.o. DA"]
    assert first.reference == "ERDA w.o. DA", "ERDA itself was not run"
    assert len(sections) == 4
    assert sections[-1].title.startswith("FewRel, 5 shots, BiLSTM")


def test_the_section_of_another_dataset_names_it(copied: Path) -> None:
    first = paper_layout(read_records(copied))[0]
    assert first.name == "main-on-atlas"
    assert first.title.startswith("main: atlas, 5 shots, BiLSTM")
    assert first.text == 'As "Main table: FewRel 10-way 5-shot, BiLSTM", but on another dataset.'
    on_fewrel(copied)
    run_paper([small_table("main")], out=copied, changes=CHANGES, show=False)
    names = [section.name for section in paper_layout(read_records(copied))]
    assert names == ["main", "main-on-atlas", "variance", "variance-on-atlas", "tsne"]
