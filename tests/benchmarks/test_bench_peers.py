from pathlib import Path

import pytest

import peers
from erda.methods import METHODS
from erda.settings.load import layers_of, read_preset
from peers import GRIDS, PRESET, choices, main


def test_methods_are_searched_with_settings_that_they_have(tmp_path: Path) -> None:
    assert {*GRIDS} <= {name for name in read_preset(PRESET)["methods"] if METHODS[name].trains}
    for one in choices([*GRIDS], tmp_path):
        run = one.planned(100, layers_of(PRESET)).asked
        assert run.evaluate_on == "validation"
        assert {**run.settings["method"], **one.values} == run.settings["method"]


def test_poor_choices_are_run_on_the_first_order_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "GRIDS", {"seqrun": ({"learning_rate": (1e-8, 1e-3), "epochs": (1, 3)},)})
    command = ["--preset", "demo", "--method", "seqrun", "--seeds", "1,2", "--set", "n_tasks=2", "--out", str(tmp_path)]
    command += ["--set", "test_per_relation=5", "--set", "first_shots=10", "--set", "encoder.hidden_size=8"]
    assert main(command) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[1] for line in lines[:4]] == ["1", "1", "2", "2"]
    assert "learning_rate=0.001 epochs=3" in lines[3]
    assert lines[4:] == [f"# {lines[3]}", "seqrun.learning_rate = 0.001", "seqrun.epochs = 3"]
    assert printed.err.count("seconds") == 6
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == lines, "what is finished is read"
    assert main([*command[:-1], "flavour=3"]) == 2
    assert "Unknown setting 'flavour'" in capsys.readouterr().err
