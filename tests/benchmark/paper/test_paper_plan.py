"""The paper's tables: the plan, and changes and tables rejected or skipped before the first run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_paper import CHANGES, ERDA, SEQRUN, small_table

from erda.benchmark.paper import paper_plan as plan_module
from erda.benchmark.paper.paper_plan import plan_runs, row_settings
from erda.benchmark.paper.paper_tables import TABLES, PaperRow, PaperTable, choose_tables
from erda.benchmark.report.report_files import VIEWS
from erda.cli.main import main
from erda.errors import SettingsError
from erda.settings.load import given_values, preset_names

# -- the plan ----------------------------------------------------------------------------------------------------------


def every_row() -> Iterator[tuple[PaperTable, PaperRow]]:
    for table in TABLES:
        for row in table.rows:
            yield table, row


def test_tables_have_unique_names_and_valid_parts() -> None:
    names = [table.name for table in TABLES]
    assert len(names) == len(set(names))
    for table in TABLES:
        assert table.preset in preset_names()
        assert set(table.views) <= set(VIEWS)
        assert table.reference is None or table.reference in [row.label for row in table.rows], table.name
        assert ("sweep" in table.views) == bool(table.setting)
        labels = [row.label for row in table.rows]
        assert len(labels) == len(set(labels)), table.name


def test_a_run_of_two_tables_is_planned_once(tmp_path: Path) -> None:
    planned = plan_runs([small_table("main"), small_table("orders")], out=tmp_path, changes=CHANGES)
    assert len(planned.runs) == 2


def test_every_row_has_valid_settings(tmp_path: Path) -> None:
    for table, row in every_row():
        settings = row_settings(table, row, given_values({"corpus": str(tmp_path)}))
        assert settings.methods == (row.method,)
        assert len(settings.seeds) == len(table.seeds or range(6))
        assert bool(settings.corpus) == row.corpus


def test_rows_share_a_folder_exactly_if_they_share_their_settings(tmp_path: Path) -> None:
    """Tables therefore share runs: main, ablation and the sweep share ERDA."""
    by_folder: dict[tuple[str, str, str], str] = {}
    by_settings: dict[str, tuple[str, str, str]] = {}
    n_shared = 0
    for table, row in every_row():
        run = row_settings(table, row, given_values({"corpus": str(tmp_path)})).runs()[0]
        asked = json.dumps(
            [run.method, run.encoder, run.dataset, run.shots, run.order_family, run.corpus, run.settings]
        )
        folder = (table.folder, row.variant, row.method)
        n_shared += folder in by_folder
        assert by_folder.setdefault(folder, asked) == asked, (table.name, row.label)
        assert by_settings.setdefault(asked, folder) == folder, (table.name, row.label)
    assert n_shared == 14  # variance (7), orders (3), ablation (2), sweep (2)


def test_another_dataset_has_its_own_folder() -> None:
    (table,) = choose_tables(["main"])
    assert table.folder_on(None) == table.folder_on("fewrel") == table.folder == "fewrel-5-shot"
    assert table.folder_on("atlas") == "fewrel-5-shot-on-atlas"
    assert table.folder_on("my data/Own_Examples.jsonl") == "fewrel-5-shot-on-own-examples-jsonl"
    (tsne,) = choose_tables(["tsne"])
    assert tsne.folder == "fewrel-5-shot-n-tasks-2"  # as in earlier versions


def test_tables_are_chosen_by_group_or_name() -> None:
    assert [table.name for table in choose_tables(["shots", "redoc41-5"])] == ["shots-2", "shots-10", "redoc41-5"]
    assert choose_tables([]) == TABLES
    with pytest.raises(SettingsError, match=r"Unknown table 'mian'\. Did you mean 'main'"):
        choose_tables(["mian"])


# -- skipped tables and rows -------------------------------------------------------------------------------------------


def test_rows_that_need_a_corpus_are_skipped_without_one_and_reported_once(tmp_path: Path) -> None:
    rows = (SEQRUN, ERDA)
    planned = plan_runs([small_table("main", *rows), small_table("orders", *rows)], out=tmp_path, changes=CHANGES)
    assert [one.asked.method for one in planned.runs] == ["seqrun"]
    assert planned.left_out == ("main, orders: rows that need a corpus (ERDA); give --corpus.",)


def test_rows_of_a_package_that_is_not_installed_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("registry", "settings.load"):
        monkeypatch.setattr(f"erda.{module}.plugin_paths", lambda group: {})
    mixed = small_table("own", SEQRUN, PaperRow("SCKD, partial", "sckd"))
    planned = plan_runs([*choose_tables(["peers-5"]), mixed], out=tmp_path, changes=CHANGES)
    assert [one.asked.method for one in planned.runs] == ["seqrun"]
    whole, row = planned.left_out
    assert whole.startswith("peers-5: rows of a package that is not installed (SeqRun, ")
    assert row == "own: rows of a package that is not installed (SCKD, partial); install packages/erda-peers."
    assert not plan_runs(choose_tables(["peers-5"]), out=tmp_path, changes=CHANGES).runs


def test_tables_without_data_are_skipped_and_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERDA_DATA", str(tmp_path))
    monkeypatch.setattr(plan_module, "build_run_encoder", lambda run: None)
    atlas = small_table("own", SEQRUN, preset="demo")
    planned = plan_runs([*choose_tables(["tacred", "base-tacred-5"]), atlas], out=tmp_path)
    assert {one.asked.dataset for one in planned.runs} == {"atlas"}
    assert len(planned.left_out) == 2  # the rows with a corpus, and the data
    assert planned.left_out[1].startswith("tacred-5, tacred-10, base-tacred-5: Dataset 'tacred' ")
    assert "Order LDC2018T24" in planned.left_out[1]


def test_no_runnable_table_is_an_error_with_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ERDA_DATA", str(tmp_path))
    out = tmp_path / "out"
    assert main(["paper", "tacred", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("erda: No table can be run.\n")
    assert "tacred-5, tacred-10: rows that need a corpus (ERDA); give --corpus." in said
    assert said.count("Order LDC2018T24") == 1
    assert not out.exists()


# -- invalid changes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "n_task=1"], "Did you mean 'n_tasks'?"),
        (["--set", "foo"], "--set foo: expected name=value."),
        (["--set", "n_tasks=none"], "--set n_tasks: expected a whole number, got 'none'."),
        (["--set", "encoder.hidden_size=4"], "--set encoder.hidden_size: fixed by the tables"),
        (["--set", "way=0"], "must be at least 1"),
        (["--seeds", "abc"], "--seeds: expected a whole number, got 'abc'."),
        (["--dataset", "nosuch"], "Unknown dataset 'nosuch'."),
        (["--device", "cuda"], "PyTorch finds no CUDA device"),
        (["--corpus", "nosuch"], "corpus: nosuch is not a folder"),
        (["--set", "corpus=x"], "corpus: x is not a folder"),
        (["--set", "methods=emr"], "--set methods: fixed by the tables"),
    ],
)
def test_an_invalid_option_is_one_line_before_the_first_run(
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


def test_settings_fixed_by_the_tables_and_impossible_streams_are_rejected(tmp_path: Path) -> None:
    for names, changes in (
        (["main", "tsne"], {"n_tasks": 3}),
        (["main"], {"erda.contrastive_weight": 0.2}),
        (["lambda"], {"memory_size": 3}),
        (["main", "orders"], {"seeds": 100, "dataset": "atlas", "n_tasks": 500}),
    ):
        with pytest.raises(SettingsError):
            plan_runs(choose_tables(names), out=tmp_path, changes=given_values(changes))
