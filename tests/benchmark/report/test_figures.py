"""Figures show the values of the records."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes
from toy_runs import toy_record, with_noise

from erda.benchmark.experiments import group_records
from erda.benchmark.report import figures as module
from erda.benchmark.report.figures import Figure, Panel, accuracy_figure, paint, save_figure, sweep_figure
from erda.errors import RecordError


def panels_of(figure: Figure) -> list[Axes]:
    return paint(figure.panels).axes


# -- curve -------------------------------------------------------------------------------------------------------------


def test_lines_and_bands_follow_the_records(tmp_path: Path) -> None:
    records = [toy_record(tmp_path, seed=seed) for seed in (1, 2)]
    records.append(toy_record(tmp_path, method="other", seed=1))
    (experiment,) = group_records(records)
    figure = accuracy_figure(experiment)
    panels = panels_of(figure)
    assert [panel.get_title() for panel in panels] == ["all-seen", "candidates"]
    for panel in panels:
        assert [line.get_label() for line in panel.get_lines()] == ["toy (n=2)", "other (n=1)", "chance"]
        assert len(panel.collections) == 1  # one stream has no band
        assert panel.get_ylim() == (0, 100)
    mean = panels[0].get_lines()[0].get_ydata()
    expected = [50 * sum(record.accuracy["all-seen"][k] for record in records[:2]) for k in range(3)]
    assert list(mean) == pytest.approx(expected)
    assert f"toy {expected[-1]:.1f}" in figure.alt


# -- sweep -------------------------------------------------------------------------------------------


def test_sweep_sorts_values(tmp_path: Path) -> None:
    records = {noise: toy_record(tmp_path / str(noise), settings=with_noise(noise)) for noise in (10.0, 0.5, 2.0)}
    (experiment,) = group_records(records.values())
    axes = panels_of(sweep_figure(experiment, "noise"))[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.5", "2.0", "10.0"]
    line = axes.get_lines()[0]
    expected = [100 * records[noise].accuracy["all-seen"][-1] for noise in (0.5, 2.0, 10.0)]
    assert list(line.get_ydata()) == pytest.approx(expected)


@pytest.mark.parametrize("setting", ["noise", "unknown"])
def test_a_sweep_needs_two_values(setting: str, tmp_path: Path) -> None:
    (experiment,) = group_records([toy_record(tmp_path)])
    with pytest.raises(RecordError):
        sweep_figure(experiment, setting)


# -- painting ----------------------------------------------------------------------------------------------------------


def toy_figure(*labels: str) -> Figure:
    def draw(axes: Axes) -> None:
        for label in labels:
            axes.plot(range(3), [0, 7, 3], label=label)

    return Figure("toy", "A title", "what is seen", "how to read it", (Panel(draw), Panel(draw)))


def test_files_are_reproducible_png_and_svg(tmp_path: Path) -> None:
    paths = save_figure(toy_figure("line"), tmp_path)
    assert [path.name for path in paths] == ["toy.png", "toy.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(paths[1]).getroot().tag.endswith("svg")
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in save_figure(toy_figure("line"), tmp_path)] == first


def test_names_are_shown_unchanged(tmp_path: Path) -> None:
    labels = ["_hidden", "a $\\frac{ b", "$x$", "<b>&\"'", "日本"]
    figure = toy_figure(*map(module.matplotlib_text, labels))
    save_figure(figure, tmp_path)
    (legend,) = paint(figure.panels).legends
    assert [text.get_text().strip().replace("\\$", "$") for text in legend.get_texts()] == labels
