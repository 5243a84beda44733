"""The size budget: what counts as a line, a command and an option, and when the check fails."""

import pytest

import lines


@pytest.mark.parametrize(("n_lines", "status"), [(28_000, 0), (28_001, 1)])
def test_the_check_fails_above_the_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], n_lines: int, status: int
) -> None:
    monkeypatch.setattr(lines, "measure_sizes", lambda root: {"source_lines": n_lines, "commands": 26})
    monkeypatch.setattr(lines, "read_budget", lambda root: {"source_lines": 28_000, "commands": 26})
    assert lines.main(["--check"]) == status
    assert ("1 over" in capsys.readouterr().out) == bool(status)


def test_every_measured_figure_has_a_budget() -> None:
    assert lines.measure_sizes(lines.ROOT).keys() == lines.read_budget(lines.ROOT).keys()
