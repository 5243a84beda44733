"""Accuracy over the number of examples: the measured points, and the figure, also from saved points."""

from dataclasses import asdict
from pathlib import Path

import pytest

import shots
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


def test_the_figure_can_be_drawn_from_saved_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "shots.json", [asdict(point) for point in POINTS])
    assert shots.main(["--out", str(tmp_path), "--draw"]) == 0
    assert (tmp_path / "shots.png").read_bytes().startswith(b"\x89PNG")
    assert "  2 examples  Posterior" in capsys.readouterr().out
    assert shots.main(["--out", str(tmp_path / "none"), "--draw"]) == 2
    assert "shots.json: cannot be read" in capsys.readouterr().err
