"""Accuracy over the number of examples: what is measured where, and the figure."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import shots


def test_without_examples_only_names_are_measured(tmp_path: Path) -> None:
    asked = Namespace(out=tmp_path, seeds="1", encoder="minilm", tests=1)
    assert shots.measured("class means", 0, asked) is None
    assert shots.measured("ERDA", 0, asked) is None


def test_the_figure_has_a_line_a_method(tmp_path: Path) -> None:
    points = [shots.Point(label, n, (0.1 * n, 0.2 * n)) for label in shots.METHODS for n in (1, 2)]
    points.append(shots.Point("Posterior", 0, (0.4,)))
    shots.draw(points, tmp_path / "shots.png")
    assert (tmp_path / "shots.png").read_bytes().startswith(b"\x89PNG")
