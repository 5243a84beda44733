"""The search: its spaces hold settings of their methods, and it writes the best values it tried."""

import tomllib
from pathlib import Path

import pytest

from erda.methods import METHODS
from erda.settings.load import layers_of
from erda.settings.runs import default_settings
from search import SPACES, Search, main

SMALL = ["--set", "n_tasks=2", "--set", "test_per_relation=5", "--set", "first_shots=10"]
SMALL += ["--set", "encoder.hidden_size=8", "--set", "batch_size=20"]
COMMAND = ["--preset", "demo", "--method", "seqrun", "--seeds", "1,2", *SMALL]


@pytest.mark.parametrize("method", sorted(SPACES))
def test_spaces_hold_only_settings_of_their_method(method: str) -> None:
    if method not in METHODS:
        pytest.skip(f"{method} is in a package that is not installed")
    assert SPACES[method].keys() <= default_settings(METHODS[method]).keys()


def test_every_choice_is_tried_once_and_the_best_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*COMMAND, "--space", "learning_rate=1e-8,1e-3", "--trials", "3", "--out", str(tmp_path)]
    assert main(command) == 0
    first = capsys.readouterr()
    assert len(first.err.splitlines()) == 3
    best = tomllib.loads((tmp_path / "seqrun.toml").read_text())
    assert best == {"settings": {"seqrun": {"learning_rate": 1e-3}}}
    assert "on validation data (all-seen), chosen by:" in first.out
    records = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    assert main(command) == 0
    assert capsys.readouterr() == first, "finished runs are read, and the sampler's seed is fixed"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == records


def test_a_search_never_uses_test_data(tmp_path: Path) -> None:
    presets = [layers_of("demo"), layers_of("demo")]
    asked = Search(method="erda", space={}, presets=presets, protocol="all-seen", out=tmp_path, n_processes=1)
    assert [one.asked.evaluate_on for one in asked.streams({"erda.batch_size": 4})] == ["validation"] * 2
    assert asked.streams({})[0].folder != asked.streams({"erda.batch_size": 4})[0].folder


@pytest.mark.parametrize("space", ["flavour=1,2", "n_tasks=2,3", "epochs=1", "epochs"])
def test_an_invalid_space_is_rejected(space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--space", space, "--out", str(tmp_path)]) == 2
    assert space.partition("=")[0] in capsys.readouterr().err
