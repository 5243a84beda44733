"""Saved methods: kills leave the earlier save intact; damaged files are rejected by name."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from erda.errors import DataError, ModelError, SettingsError, WriteError
from erda.methods.base import Method
from erda.methods.erda import Erda
from erda.methods.saving import FILE
from erda.types import EncoderSpec
from toy_world import toy_encoder, toy_questions, toy_task


def learned(n_tasks: int = 1) -> Method:
    method = Erda(toy_encoder(1), seed=1)
    for index in range(n_tasks):
        method.learn(toy_task(index))
    return method


def load(folder: Path) -> Method:
    return Method.load(folder, encoder=toy_encoder(2))


def scores(method: Method) -> np.ndarray:
    return method.predict(toy_questions(2)[0]).scores


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    learned().save(tmp_path / "saved")
    return tmp_path / "saved"


def change(folder: Path, **changes: object) -> None:
    """Change fields of the metadata, and leave its seal."""
    with safe_open(folder / FILE, framework="numpy") as file:
        about, arrays = json.loads(file.metadata()["erda"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    (folder / FILE).write_bytes(save(arrays, {"erda": json.dumps(about | changes)}))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"{FILE} is missing"):
        load(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda all: all[:1000], lambda all: all[:-1], lambda all: all[:-1] + b"!"]
)
def test_a_damaged_file_is_rejected(saved: Path, damage: Callable[[bytes], bytes]) -> None:
    (saved / FILE).write_bytes(damage((saved / FILE).read_bytes()))
    with pytest.raises(ModelError, match=rf"saved/{FILE}.* Save the method again"):
        load(saved)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 1}, "format: "),
        ({"flavour": 3}, "flavour: "),
        ({"relations": [{"id": "r0"}]}, "relations"),
        ({"method": "emr"}, "was changed or damaged"),
        ({"kept": []}, "was changed or damaged"),
    ],
)
def test_changed_metadata_is_rejected(saved: Path, changes: dict[str, object], said: str) -> None:
    change(saved, **changes)
    with pytest.raises(ModelError, match=rf"{FILE}: {said}"):
        load(saved)


def test_a_save_that_does_not_fit_the_method_is_rejected(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Erda, "_prepare", lambda self: self._stack("centre"))
    with pytest.raises(ModelError, match="does not fit method 'erda'"):
        load(saved)


def test_an_encoder_with_other_frozen_weights_is_rejected(saved: Path) -> None:
    encoder = toy_encoder()
    encoder.spec = EncoderSpec("bilstm", encoder.spec.settings, "0123456789abcdef")
    with pytest.raises(ModelError, match=r"other weights of encoder 'bilstm' \(toy, not 01234567\)"):
        Method.load(saved, encoder=encoder)


def test_settings_of_an_earlier_version_are_accepted_where_they_change_nothing() -> None:
    method = learned()
    former = {"names": False, "unit_embeddings": True}
    assert Erda.from_settings(toy_encoder(1), {**method.settings(), **former}).settings() == method.settings()
    with pytest.raises(SettingsError, match="whiten: is not a setting any more"):
        Erda.from_settings(toy_encoder(1), {**method.settings(), "whiten": True})


def test_a_real_kill_while_writing_leaves_the_earlier_save(saved: Path) -> None:
    before = scores(load(saved))
    method = learned(2)
    if not (child := os.fork()):
        Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        try:
            method.save(saved)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    np.testing.assert_array_equal(scores(load(saved)), before)
    assert len(list(saved.iterdir())) == 2
    method.save(saved)
    assert [path.name for path in saved.iterdir()] == [FILE], "the next save tidies up"
    assert load(saved).n_tasks == 2


def test_a_save_never_replaces_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = learned()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("mine")
    method.save(tmp_path / "mixed")
    (tmp_path / "mixed" / "notes.txt").write_text("mine too")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / FILE).write_bytes(save({"x": np.ones(3)}))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("notes", "file", "mixed", "foreign"):
        with pytest.raises(ModelError, match="holds other files than a saved method"):
            method.save(tmp_path / name)
    monkeypatch.chdir(tmp_path / "notes")
    with pytest.raises(ModelError, match="holds other files"):
        method.save(Path())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_a_folder_that_cannot_exist_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"Cannot write .*Not a directory"):
        learned().save(tmp_path / "file" / "model")
    with pytest.raises(DataError, match="file name"):
        learned().save(tmp_path / name)
    with pytest.raises(DataError, match="file name"):
        load(tmp_path / name)
