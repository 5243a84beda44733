"""The curve shows every line, a band where there are several streams, and one panel per protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from toy_runs import toy_record

from erda.benchmark import figures
from erda.benchmark.experiments import group_records


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    kept: list[Figure] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, stem: kept.append(figure) or [])
    return kept


def test_lines_and_bands_follow_the_records(tmp_path: Path, drawn: list[Figure]) -> None:
    records = [toy_record(tmp_path, seed=seed) for seed in (1, 2)]
    records.append(toy_record(tmp_path, method="other", seed=1))
    (experiment,) = group_records(records)
    figures.draw_curve(experiment, tmp_path / "curve")
    panels = drawn[0].axes
    assert [panel.get_title() for panel in panels] == ["all-seen", "candidates"]
    for panel in panels:
        assert [line.get_label() for line in panel.get_lines()] == ["toy (n=2)", "other (n=1)", "chance"]
        assert len(panel.collections) == 1  # one stream has no band
        assert panel.get_ylim() == (0, 100)
    mean = panels[0].get_lines()[0].get_ydata()
    expected = [50 * sum(record.accuracy["all-seen"][k] for record in records[:2]) for k in range(3)]
    assert list(mean) == pytest.approx(expected)


def test_more_lines_than_colours_still_differ(tmp_path: Path, drawn: list[Figure]) -> None:
    records = [toy_record(tmp_path, method=f"m{number}") for number in range(9)]
    (experiment,) = group_records(records)
    figures.draw_curve(experiment, tmp_path / "curve")
    styles = {(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].get_lines()}
    assert len(styles) == 10
