"""Checkpoints of an interrupted training."""

import json
from errno import ENOSPC
from pathlib import Path

import pytest
from tiny_models import build_model
from toy_pairs import SMALL

from erda.corpus.similarity_training import CHECKPOINTS, train
from erda.corpus.training_pairs import Machine
from erda.errors import DataError, SettingsError, WriteError
from erda.fields import changed_settings
from erda.files import locked, temporary_name


@pytest.mark.parametrize("changes", [{}, {"rank": 0, "objective": "paper"}])
def test_a_resumed_training_equals_an_uninterrupted_one(folder, rows, tmp_path, changes):
    settings = changed_settings(SMALL, {"n_epochs": 2, **changes})
    whole = train(folder, rows, settings, out=tmp_path / "whole")
    interrupt(folder, rows, settings, out=tmp_path / "part", save_steps=5)
    with pytest.raises(SettingsError):
        train(folder, rows, changed_settings(settings, {"seed": 3}), out=tmp_path / "part")
    other = build_model(tmp_path / "other", n_layers=2, seed=5)
    with pytest.raises(SettingsError):
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


def test_a_damaged_checkpoint_is_rejected(folder, rows, tmp_path):
    settings = changed_settings(SMALL, {"n_epochs": 2})
    interrupt(folder, rows, settings, out=tmp_path, save_steps=2)
    path = tmp_path / CHECKPOINTS / "checkpoint.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"checkpoint\.npz"):
        train(folder, rows, settings, out=tmp_path)


def test_a_full_disk_while_writing_a_checkpoint_raises(folder, rows, tmp_path, monkeypatch):
    write = Path.write_bytes

    def no_room(self, content):
        if "npz" in self.name:
            raise OSError(ENOSPC, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(WriteError, match=r"checkpoint\.npz"):
        train(folder, rows, SMALL, out=tmp_path, machine=Machine(save_steps=2))


def test_an_unfinished_training_with_other_settings_is_rejected(folder, rows, tmp_path):
    other = {"made_by": "erda corpus train", "version": 3, "settings": SMALL.model_dump(), "pairs": "other"}
    (tmp_path / CHECKPOINTS).mkdir()
    (tmp_path / CHECKPOINTS / "run.json").write_text(json.dumps(other))
    with pytest.raises(SettingsError, match="other pairs"):
        train(folder, rows, SMALL, out=tmp_path)


def test_temporary_files_of_a_killed_training_go_and_a_running_one_keeps_others_out(
    folder, rows, tmp_path, monkeypatch
):
    out = tmp_path / "model"
    train(folder, rows, SMALL, out=out)
    left = temporary_name(out / "adapter.safetensors")
    left.write_bytes(b"half")
    train(folder, rows, SMALL, out=out)
    assert not left.exists()
    with locked(out, busy="busy"), pytest.raises(DataError, match="another process trains a model here"):
        train(folder, rows, SMALL, out=out)
