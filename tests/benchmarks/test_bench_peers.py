import tomllib
from pathlib import Path

import pytest

import peers
from erda.methods import METHODS
from erda.settings.load import layers_of, read_preset
from peers import GRIDS, PRESET, choices, main


def test_methods_are_searched_with_settings_that_they_have(tmp_path: Path) -> None:
    assert {*GRIDS} <= {name for name in read_preset(PRESET)["methods"] if METHODS[name].trains}
    for one in choices([*GRIDS], tmp_path, trials=100):
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
    assert lines[6].startswith("# seqrun: ")
    assert lines[7:] == ["seqrun.learning_rate = 0.001", "seqrun.epochs = 3"]
    assert printed.err.count("seconds") == 6
    preset = tmp_path / "toy-adapter.toml"
    preset.write_text('description = "Toys."\ndataset = "atlas"\n\n[settings]\nbatch_size = 16\n')
    monkeypatch.setattr(peers, "PRESETS", tmp_path)
    for _ in range(2):  # the second takes the place of the first
        assert main([*command, "--write", "*"]) == 0
        assert capsys.readouterr().out.splitlines()[:4] == lines[:4], "what is finished is read"
        assert preset.read_text().count("Chosen on validation data") == 1
    toml = tomllib.loads(preset.read_text())
    assert toml["settings"] == {"batch_size": 16, "seqrun": {"learning_rate": 0.001, "epochs": 3}}
    assert main([*command[:-1], "flavour=3"]) == 2
    assert "Unknown setting 'flavour'" in capsys.readouterr().err
