"""The t-SNE figure shows the test examples of the first two tasks."""

from pathlib import Path

import pytest
from toy_paper import TINY, WITHOUT_AUGMENTATION, small_table

import tsne
from erda.benchmark.experiments import group_records
from erda.benchmark.paper.paper_plan import run_paper
from erda.benchmark.records import read_records
from erda.benchmark.report.figures import paint
from erda.settings.load import given_values


def test_tsne_draws_every_point_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = small_table("tsne", WITHOUT_AUGMENTATION, settings={"n_tasks": 2}, seeds=(100,))
    run_paper([table], out=tmp_path, changes=given_values(TINY), show=False)
    (experiment,) = group_records(read_records(tmp_path).records)
    before, after = paint(tsne.tsne_figure(experiment).panels).axes
    assert [sum(len(group.get_offsets()) for group in axes.collections) for axes in (before, after)] == [6, 12]
    assert [len(axes.collections) for axes in (before, after)] == [2, 4]
    assert tsne.main([str(tmp_path), "--out", str(tmp_path / "figure")]) == 0
    assert {path.name for path in (tmp_path / "figure").iterdir()} == {"tsne.png", "tsne.svg"}
    assert tsne.main([str(tmp_path / "nowhere"), "--out", str(tmp_path)]) == 2
