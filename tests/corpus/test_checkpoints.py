"""A training that was cut off goes on."""

import json
from errno import ENOSPC
from pathlib import Path

import pytest
from tiny_models import build_model
from toy_pairs import SMALL

from erda.corpus.checkpoints import CHECKPOINTS
from erda.corpus.recipe import Machine
from erda.corpus.similarity import load_similarity
from erda.corpus.training import train
from erda.errors import SettingsError, WriteError
from erda.fields import changed_settings


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.2, "average": 0.9, "rank": 0}])
def test_an_interrupted_training_goes_on(folder, rows, tmp_path, changes):
    settings = changed_settings(SMALL, {"n_epochs": 2, **changes})
    whole = train(folder, rows, settings, out=tmp_path / "whole")
    interrupt(folder, rows, settings, out=tmp_path / "part", save_steps=5)
    with pytest.raises(SettingsError, match="unfinished training with another encoder, other settings or pairs"):
        train(folder, rows, changed_settings(settings, {"seed": 3}), out=tmp_path / "part")
    other = build_model(tmp_path / "other", n_layers=2, seed=5)
    with pytest.raises(SettingsError, match="unfinished training with another encoder"):
        train(other, rows, settings, out=tmp_path / "part")
    seen: list[int] = []
    machine = Machine(save_steps=5)
    resumed = train(folder, rows, settings, out=tmp_path / "part", machine=machine, after_step=seen.append)
    assert seen == [6, 7, 8, 9, 10]
    assert resumed.weights.digest == whole.weights.digest


def interrupt(folder, rows, settings, *, out, save_steps):
    def stop(step):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, rows, settings, out=out, machine=Machine(save_steps=save_steps), after_step=stop)


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_damaged_checkpoint_is_passed_over(folder, rows, tmp_path, capsys, ending):
    settings = changed_settings(SMALL, {"n_epochs": 2})
    whole = train(folder, rows, settings, out=tmp_path / "whole")
    interrupt(folder, rows, settings, out=tmp_path / "part", save_steps=2)
    assert sorted(path.name for path in (tmp_path / "part" / CHECKPOINTS).glob("*.safetensors")) == [
        "checkpoint-4.safetensors",
        "checkpoint-6.safetensors",
    ]
    path = tmp_path / "part" / CHECKPOINTS / f"checkpoint-6.{ending}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content if ending == "safetensors" else content[:-9])
    capsys.readouterr()
    seen: list[int] = []
    resumed = train(folder, rows, settings, out=tmp_path / "part", after_step=seen.append)
    assert "checkpoint-6: is damaged or not whole" in capsys.readouterr().err
    assert seen[0] == 5  # it goes on from the checkpoint before
    assert resumed.weights.digest == whole.weights.digest


def test_a_full_disk_is_said_when_a_checkpoint_does_not_fit(folder, rows, tmp_path, monkeypatch):
    whole = Path.write_bytes

    def no_room(self, content):
        if "safetensors" in self.name:
            raise OSError(ENOSPC, "No space left on device")
        return whole(self, content)

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(
        WriteError, match=r"checkpoint-2\.safetensors: the disk is full\. What was there before is intact"
    ):
        train(folder, rows, SMALL, out=tmp_path, machine=Machine(save_steps=2))


def test_an_unfinished_training_can_be_given_up(folder, rows, tmp_path):
    other = {"made_by": "erda corpus train", "version": 3, "settings": SMALL.model_dump(), "pairs": "other"}
    (tmp_path / CHECKPOINTS).mkdir()
    (tmp_path / CHECKPOINTS / "run.json").write_text(json.dumps(other))
    with pytest.raises(SettingsError, match="--no-resume"):
        train(folder, rows, SMALL, out=tmp_path)
    assert train(folder, rows, SMALL, out=tmp_path, resume=False).n_steps == 5
    assert load_similarity(tmp_path).weights.kind == "adapter"
    assert not (tmp_path / CHECKPOINTS).exists()
