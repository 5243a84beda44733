"""Accuracy over the number of examples: the measured points, and the figure, also from saved points."""

from dataclasses import asdict
from pathlib import Path

import pytest

import shots
from erda.benchmark.report.figures import paint
from erda.files import write_json

POINTS = [shots.Point(name, n, (0.1 * n, 0.2 * n)) for name in shots.CURVES for n in (1, 2)]
POINTS.append(shots.Point("posterior", 0, (0.4,)))


def test_without_examples_only_names_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shots, "_accuracy", lambda name, n, asked: (0.5,))
    assert shots.main(["--out", str(tmp_path), "--shots", "0,1"]) == 0
    kept = shots.read_json(tmp_path / "shots.json", list[shots.Point])
    assert [(one.curve, one.shots) for one in kept] == [
        ("posterior", 0),
        ("posterior-patterns", 0),
        *((name, 1) for name in shots.CURVES),
    ]


def test_each_line_is_labelled_at_its_end() -> None:
    axes = paint(shots.shots_figure(POINTS).panels).axes[0]
    assert [text.get_text() for text in axes.texts] == [curve.label for curve in shots.CURVES.values()]
    assert len(axes.get_lines()) == len(shots.CURVES)
    assert axes.get_lines()[0].get_ydata()[0] == pytest.approx(40)
    assert [one.get_text() for one in axes.get_xticklabels()] == ["0", "1", "2"]


def test_the_figure_can_be_drawn_from_saved_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "shots.json", [asdict(point) for point in POINTS])
    assert shots.main(["--out", str(tmp_path), "--draw"]) == 0
    assert (tmp_path / "shots.png").read_bytes().startswith(b"\x89PNG")
    assert "  2 examples  Posterior" in capsys.readouterr().out
    assert shots.main(["--out", str(tmp_path / "none"), "--draw"]) == 2
    assert "shots.json: cannot be read" in capsys.readouterr().err
