"""The size budget: what counts as a line, a command and an option, and when the check fails."""

import argparse

import pytest

import lines
from erda.cli.main import build_parser


def test_commands_and_options_are_counted_without_groups_help_and_positional_arguments() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="version")
    groups = parser.add_subparsers()
    teach = groups.add_parser("teach", aliases=["learn"])
    teach.add_argument("sentence")
    teach.add_argument("-s", "--store")
    corpus = groups.add_parser("corpus").add_subparsers()
    corpus.add_parser("build").add_argument("--store")
    corpus.add_parser("stats")
    found = [lines.options_of(command) for command in lines.commands_of(parser)]
    assert found == [["--store"], ["--store"], []]
    assert "erda teach" in [command.prog for command in lines.commands_of(build_parser())]


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
