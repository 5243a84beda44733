import json
from pathlib import Path

import pytest
from toy_runs import toy_record

import paper
from erda.benchmark.paper.paper_tables import PaperTable
from erda.benchmark.records import RECORD
from erda.errors import RecordError, SettingsError
from erda.files import sealed, write_json
from paper import main, paper_figures, time_table

SEEDS = (100, 110, 120, 130, 140, 150)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("toy")
    toy_record(folder)
    (path,) = folder.rglob(RECORD)
    return json.loads(path.read_text())


def put(
    out: Path,
    template: dict,
    variant: str,
    method: str,
    *,
    last: float,
    setting: str = "fewrel-5-shot",
    seeds: tuple[int, ...] = SEEDS,
) -> None:
    """Write records of a row; its final accuracy is `last` plus a small offset per order."""
    for number, seed in enumerate(seeds):
        record = {**template, "method": method, "seed": seed, "dataset": "fewrel", "shots": 5, "encoder": "bilstm"}
        value = last + number / 1000 + (seed * 7 % 30) / 10_000 * (method == "erda")
        record["accuracy"] = {name: [0.9, 0.8, value] for name in template["accuracy"]}
        record["order_family"] = "erda"
        record["corpus"] = "wiki" if variant == "augmented" else ""
        record["manifest"] = {**template["manifest"], "digest": f"stream-{seed}"}
        path = out / setting / variant / method / str(seed) / RECORD
        write_json(path, sealed(record))


def test_figures_come_from_records_beside_their_targets(tmp_path: Path, template: dict) -> None:
    put(tmp_path, template, "augmented", "erda", last=0.60)
    put(tmp_path, template, "plain", "erda", last=0.55)
    put(tmp_path, template, "plain", "idlvq-c", last=0.50)
    put(tmp_path, template, "plain", "emr", last=0.30)
    figures = {figure.name.strip(): figure for figure in paper_figures(tmp_path)}
    assert figures["ERDA, BiLSTM, candidates after task 8"].verdict == "met"
    gain = figures["over ERDA w.o. DA"]
    assert gain.value == pytest.approx(5.0, abs=0.01)
    assert (gain.target, gain.verdict) == (">= 1.5", "met")
    assert figures["over IDLVQ-C"].value == pytest.approx(10.2, abs=0.2)
    away = figures["EMR against the paper's 37.51"]
    assert away.value == pytest.approx(30.25 - 37.51, abs=0.01)
    assert figures["away from it"].verdict == "NOT MET"
    assert all(figure.verdict == "met" for name, figure in figures.items() if name.startswith("p, "))


def test_a_folder_without_the_main_table_is_an_error(tmp_path: Path, template: dict) -> None:
    put(tmp_path, template, "plain", "erda", last=0.5, setting="elsewhere")
    with pytest.raises(RecordError, match="run `erda paper main` first"):
        paper_figures(tmp_path)


def test_timing_needs_an_empty_folder(tmp_path: Path, template: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "old", template, "plain", "erda", last=0.5)
    with pytest.raises(SettingsError, match="already holds records"):
        time_table("main", tmp_path / "old")
    asked: dict[str, object] = {}

    class Done:
        n_runs, faults = 36, ()

    def fake(tables: list[PaperTable], **settings: object) -> Done:
        asked.update(tables=tables, **settings)
        return Done()

    monkeypatch.setattr(paper, "run_paper", fake)
    (part,) = time_table("main", tmp_path / "part", seeds=(100,))
    assert part.target == "", "one order is no table"
    (figure,) = time_table("main", tmp_path / "new", n_processes=2)
    assert [table.name for table in asked["tables"]] == ["main"]
    assert (figure.unit, figure.target, figure.verdict) == ("min", "<= 10", "met")
    assert "36 runs, 2 processes" in figure.name


def test_the_command_prints_figures(tmp_path: Path, template: dict, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, template, "plain", "erda", last=0.51)
    put(tmp_path, template, "plain", "seqrun", last=0.12)
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "NOT MET" in printed  # 51 < 52
    assert "over SeqRun" in printed


def test_an_uncompared_figure_does_not_meet_its_target(tmp_path: Path, template: dict) -> None:
    put(tmp_path, template, "plain", "erda", last=0.60, seeds=(100, 110))
    put(tmp_path, template, "plain", "emr", last=0.30, seeds=(120, 130))
    figures = {figure.name.strip(): figure for figure in paper_figures(tmp_path)}
    assert (figures["over EMR"].value, figures["over EMR"].verdict) == (None, "not measured")
