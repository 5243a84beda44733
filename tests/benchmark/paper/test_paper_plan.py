"""The paper's tables: the plan, and what is refused or left out before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_paper import CHANGES, ERDA, SEQRUN, small_table

from erda.benchmark.paper import paper_plan as plan_module
from erda.benchmark.paper.paper_plan import check_changes, plan_runs, row_settings
from erda.benchmark.paper.paper_tables import TABLES, PaperRow, PaperTable, choose_tables
from erda.benchmark.report.sections import VIEWS
from erda.cli.main import main
from erda.errors import ModelError, SettingsError
from erda.settings.load import given_values, preset_names
from erda.settings.runs import Run

ERDA_LABELS = {"ERDA", "ERDA w.o. DA"}


# -- the plan ----------------------------------------------------------------------------------------------------------


def every_row() -> Iterator[tuple[PaperTable, PaperRow]]:
    for table in TABLES:
        for row in table.rows:
            yield table, row


def test_names_of_tables_are_unique_and_their_parts_are_known() -> None:
    names = [table.name for table in TABLES]
    assert len(names) == len(set(names))
    for table in TABLES:
        assert table.preset in preset_names()
        assert set(table.views) <= set(VIEWS)
        assert table.reference is None or table.reference in [row.label for row in table.rows], table.name
        assert ("sweep" in table.views) == bool(table.setting)
        labels = [row.label for row in table.rows]
        assert len(labels) == len(set(labels)), table.name


def test_settings_of_every_row_can_work(tmp_path: Path) -> None:
    for table, row in every_row():
        settings = row_settings(table, row, given_values({"corpus": str(tmp_path)}))
        assert settings.methods == (row.method,)
        assert len(settings.seeds) == len(table.seeds or range(6))
        assert bool(settings.corpus) == row.corpus


def test_rows_that_share_a_folder_are_the_same_run(tmp_path: Path) -> None:
    """So a run of one table may stand in another: main, ablation and the sweep share ERDA."""
    seen: dict[tuple[str, str, str], dict[str, object]] = {}
    shared = 0
    for table, row in every_row():
        settings = row_settings(table, row, given_values({"corpus": str(tmp_path)}))
        run = settings.runs()[0]
        key = (table.folder, row.variant, row.method)
        shared += key in seen
        assert seen.setdefault(key, run.settings) == run.settings, (table.name, row.label)
    assert (
        shared == 15
    )  # all of variance (7), three of orders, two of the ablation and of the sweep, Posterior on redoc41


def test_different_settings_lie_in_different_folders(tmp_path: Path) -> None:
    folders: dict[str, tuple[str, str, str]] = {}
    for table, row in every_row():
        run = row_settings(table, row, given_values({"corpus": str(tmp_path)})).runs()[0]
        asked = json.dumps(
            [run.method, run.encoder, run.dataset, run.shots, run.order_family, run.corpus, run.settings]
        )
        key = (table.folder, row.variant, row.method)
        assert folders.setdefault(asked, key) == key, (table.name, row.label)


def test_another_dataset_has_a_folder_of_its_own() -> None:
    (table,) = choose_tables(["main"])
    assert table.folder_on(None) == table.folder_on("fewrel") == table.folder == "fewrel-5-shot"
    assert table.folder_on("atlas") == "fewrel-5-shot-on-atlas"
    assert table.folder_on("my data/Own_Examples.jsonl") == "fewrel-5-shot-on-own-examples-jsonl"
    (tsne,) = choose_tables(["tsne"])
    assert tsne.folder == "fewrel-5-shot-n-tasks-2"  # where records of earlier versions lie


def test_tables_are_chosen_by_group_or_name() -> None:
    assert [table.name for table in choose_tables(["shots", "redoc41-5"])] == ["shots-2", "shots-10", "redoc41-5"]
    assert choose_tables([]) == TABLES
    with pytest.raises(SettingsError, match=r"Unknown table 'mian'\. Did you mean 'main'"):
        choose_tables(["mian"])


# -- left out ----------------------------------------------------------------------------------------------------------


def test_rows_with_a_corpus_are_left_out_without_one_and_said_once(tmp_path: Path) -> None:
    rows = (SEQRUN, ERDA)
    planned = plan_runs([small_table("main", *rows), small_table("orders", *rows)], out=tmp_path, changes=CHANGES)
    assert [one.asked.method for one in planned.runs] == ["seqrun"]
    assert planned.left_out == ("main, orders: rows that learn with a corpus (ERDA); give --corpus.",)


def test_missing_data_is_said_once_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERDA_DATA", str(tmp_path))
    monkeypatch.setattr(plan_module, "build_run_encoder", lambda run: None)
    atlas = small_table("own", SEQRUN, preset="demo")
    planned = plan_runs([*choose_tables(["tacred", "base-tacred-5"]), atlas], out=tmp_path)
    assert {one.asked.dataset for one in planned.runs} == {"atlas"}
    assert len(planned.left_out) == 2  # the rows with a corpus, and the data
    assert planned.left_out[1].startswith("tacred-5, tacred-10, base-tacred-5: Dataset 'tacred' is not here")
    assert "order LDC2018T24" in planned.left_out[1]


def test_missing_weights_leave_a_table_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mpnet(run: Run) -> None:
        if run.encoder == "mpnet":
            raise ModelError("Weights of 'mpnet' are missing.")

    monkeypatch.setattr(plan_module, "build_run_encoder", without_mpnet)
    tables = [small_table("base", SEQRUN, preset="fewrel-5-shot-mpnet"), small_table("main")]
    changes = given_values({"seeds": 100, "dataset": "atlas", "n_tasks": 2, "way": 2})
    planned = plan_runs(tables, out=tmp_path, changes=changes)
    assert {one.asked.encoder for one in planned.runs} == {"bilstm"}
    assert planned.left_out == ("base: Weights of 'mpnet' are missing.",)


def test_nothing_that_can_be_run_is_a_fault_with_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ERDA_DATA", str(tmp_path))
    out = tmp_path / "out"
    assert main(["paper", "tacred", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("erda: Nothing can be run.\n")
    assert "tacred-5, tacred-10: rows that learn with a corpus (ERDA); give --corpus." in said
    assert said.count("order LDC2018T24") == 1
    assert not out.exists()


# -- the user's own faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "foo=1"], "--set foo: Unknown setting 'foo'."),
        (["--set", "foo"], "--set foo: expected name=value."),
        (["--set", "n_tasks=none"], "--set n_tasks: expected a whole number, got 'none'."),
        (["--set", "encoder.hidden_siez=4"], "Did you mean 'encoder.hidden_size'?"),
        (["--set", "emar.batch_size=0"], "must be at least 1"),
        (["--seeds", "abc"], "--seeds: expected a whole number, got 'abc'."),
        (["--dataset", "nosuch"], "Unknown dataset 'nosuch'."),
        (["--device", "cuda"], "PyTorch finds no CUDA device"),
        (["--corpus", "nosuch"], "corpus: nosuch is no folder"),
        (["--jobs", "0"], "--jobs: must be at least 1, got 0."),
        (["--address", "auto"], "--address: only with --engine ray."),
        (["--set", "corpus=x"], "corpus: x is no folder"),
        (["--set", "methods=emr"], "--set methods: the tables say that themselves"),
    ],
)
def test_a_fault_of_the_users_is_said_once_before_anything_runs(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    status = main(["paper", "main", "redoc41", "bert", *words, "--out", "out"])
    printed = capsys.readouterr().err
    assert status == 2
    assert said in printed
    assert len(printed.splitlines()) == 1, printed
    assert not (tmp_path / "out").exists()


def test_all_faults_of_the_users_are_said_at_once(tmp_path: Path) -> None:
    changes = given_values({"seeds": "x", "dataset": "nosuch", "foo": 1, "erda.contrastive_weight": 1})
    with pytest.raises(SettingsError) as caught:
        plan_runs(choose_tables(["main", "lambda"]), out=tmp_path, changes=changes)
    assert len(str(caught.value).splitlines()) == 4


def test_a_setting_goes_to_the_rows_that_have_it(tmp_path: Path) -> None:
    """SeqRun has no memory, and MiniLM no hidden size; the other rows and tables have."""
    tables = [small_table("main"), small_table("minilm", preset="fewrel-5-shot-minilm-paper")]
    changes = given_values({"seeds": 100, "dataset": "atlas", "n_tasks": 2, "memory_size": 3, "encoder.hidden_size": 4})
    planned = plan_runs(tables, out=tmp_path, changes=changes, look=False)
    found = {
        (run.encoder, run.method): (
            run.settings["method"].get("memory_size"),
            run.settings["encoder"].get("hidden_size"),
        )
        for run in (one.asked for one in planned.runs)
    }
    assert found == {
        ("bilstm", "seqrun"): (None, 4),
        ("bilstm", "erda"): (3, 4),
        ("minilm", "seqrun"): (None, None),
        ("minilm", "erda"): (3, None),
    }


@pytest.mark.parametrize("name", ["erda.contrastive_weight", "contrastive_weight", "erda.contrastive-weight"])
def test_a_setting_that_a_row_has_itself_is_refused(name: str, tmp_path: Path) -> None:
    changes = given_values({name: 0.2})
    with pytest.raises(SettingsError):
        plan_runs(choose_tables(["main", "ablation", "lambda"]), out=tmp_path, changes=changes)
    check_changes(choose_tables(["main"]), changes)


def test_a_setting_that_a_table_has_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        plan_runs(choose_tables(["main", "tsne"]), out=tmp_path, changes=given_values({"n_tasks": 3}))
    with pytest.raises(SettingsError):
        plan_runs(choose_tables(["lambda"]), out=tmp_path, changes=given_values({"emr.memory_size": 3}))


def test_a_stream_that_cannot_be_is_the_users_fault(tmp_path: Path) -> None:
    changes = given_values({"seeds": 100, "dataset": "atlas", "n_tasks": 500})
    with pytest.raises(SettingsError):
        plan_runs([small_table("main"), small_table("orders")], out=tmp_path, changes=changes)


@pytest.mark.fewrel
def test_every_seed_that_is_given_is_tried(data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        plan_runs([small_table("main", SEQRUN)], out=tmp_path, changes=given_values({"seeds": [100, 115]}))
