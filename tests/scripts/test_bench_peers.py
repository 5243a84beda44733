import tomllib
from pathlib import Path
from shutil import copytree

import pytest

import peers
from erda.data.catalogue import embedded_file
from erda.settings.load import layers_of, settings_from
from peers import GRIDS, PAPER_GRIDS, Grid, choices, main


@pytest.mark.parametrize(("preset", "grids"), [("fewrel-fresh-adapter", GRIDS), ("fewrel-5-shot-mpnet", PAPER_GRIDS)])
def test_grids_contain_only_settings_of_their_method(
    preset: str, grids: dict[str, tuple[Grid, ...]], tmp_path: Path
) -> None:
    settings = settings_from(layers_of(preset))
    asked = choices(settings, tmp_path, trials=100)
    assert {one.method for one in asked} == {*grids}
    for one in asked:
        run = one.planned(100, layers_of(preset)).asked
        assert run.evaluate_on == "validation"
        assert {**run.settings["method"], **one.values} == run.settings["method"]


def test_poor_choices_run_only_on_the_first_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "GRIDS", {"seqrun": ({"learning_rate": (1e-8, 1e-3), "epochs": (1, 3)},)})
    command = ["--preset", "demo", "--method", "seqrun", "--seeds", "1,2", "--set", "n_tasks=2", "--out", str(tmp_path)]
    command += ["--set", "test_per_relation=5", "--set", "first_shots=10", "--set", "encoder.hidden_size=8"]
    assert main(command) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[1] for line in lines[:5]] == ["1", "1", "2", "2", "2"]
    assert "learning_rate=0.0 epochs=3" in lines[4], "the preset's own, which is the encoder's 0.001, comes first"
    assert "learning_rate=0.001 epochs=3" in lines[3]
    assert lines[7].startswith("# seqrun: ")
    assert lines[8:] == ["seqrun.learning_rate = 0.0", "seqrun.epochs = 3"]
    assert printed.err.count("seconds") == 8
    preset = tmp_path / "demo.toml"
    preset.write_text('description = "Toys."\ndataset = "atlas"\n\n[settings]\nbatch_size = 16\n')
    monkeypatch.setattr(peers, "PRESETS", tmp_path)
    for _ in range(2):  # the second takes the place of the first
        assert main([*command, "--write"]) == 0
        assert capsys.readouterr().out.splitlines()[:5] == lines[:5], "what is finished is read"
        assert preset.read_text().count("Chosen on validation data") == 1
    toml = tomllib.loads(preset.read_text())
    assert toml["settings"] == {"batch_size": 16, "seqrun": {"learning_rate": 0.0, "epochs": 3}}
    assert main([*command[:-1], "flavour=3"]) == 2
    assert "Unknown setting 'flavour'" in capsys.readouterr().err


def test_streams_of_another_preset_and_another_preset_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(embedded_file(""), tmp_path / "other")
    for name, dataset in (("first", "atlas"), ("second", str(tmp_path / "other")), ("third", "atlas")):
        head = [
            f"dataset = '{dataset}'",
            'methods = ["posterior"]',
            'encoder = "bilstm"',
            "shots = 2",
            "first_shots = 3",
        ]
        head += ["way = 3", "n_tasks = 2", "test_per_relation = 3"]
        lines = [*head, "[settings]", "encoder.hidden_size = 8"]
        (tmp_path / f"{name}.toml").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr("erda.settings.load.PRESETS", tmp_path)
    monkeypatch.setattr(peers, "PRESETS", tmp_path)
    monkeypatch.setattr(peers, "GRIDS", {"posterior": ({"name_weight": (1.0, 2.0)},)})
    command = ["--preset", "first", "--also", "second", "--seeds", "1,2", "--out", str(tmp_path / "out")]
    assert main([*command, "--write", "third"]) == 0
    assert "over 4 streams" in capsys.readouterr().out
    assert "posterior" in tomllib.loads((tmp_path / "third.toml").read_text())["settings"]
    assert "posterior" not in tomllib.loads((tmp_path / "first.toml").read_text())["settings"]
