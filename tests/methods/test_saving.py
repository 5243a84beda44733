"""Saved methods: full disks and kills leave the earlier save intact; damaged files are rejected by name."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from erda.errors import DataError, ModelError, SettingsError, WriteError
from erda.methods import saving
from erda.methods.base import Method
from erda.methods.erda import Erda
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


def part(folder: Path, name: str) -> Path:
    """Return the file of a save whose name starts with `name`."""
    return next(path for path in folder.iterdir() if path.name.startswith(name))


def edit(folder: Path, **changes: object) -> None:
    about = json.loads((folder / "method.json").read_text(encoding="utf-8"))
    (folder / "method.json").write_text(json.dumps(about | changes), encoding="utf-8")


@pytest.mark.parametrize("name", ["method", "weights"])
def test_a_missing_file_is_reported(saved: Path, name: str) -> None:
    file = part(saved, name)
    file.unlink()
    with pytest.raises(ModelError, match=rf"saved/{file.name} is missing"):
        load(saved)


@pytest.mark.parametrize("name", ["method", "weights"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_rejected(saved: Path, name: str, share: float) -> None:
    file = part(saved, name)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError, match=rf"saved/{file.name}.*ave the method again"):
        load(saved)


@pytest.mark.parametrize(
    "change",
    [{"format": 1}, {"flavour": 3}, {"relations": [{"id": "r0"}]}],
)
def test_an_invalid_field_is_reported(saved: Path, change: dict[str, object]) -> None:
    edit(saved, **change)
    with pytest.raises(ModelError, match=rf"method\.json: {next(iter(change))}"):
        load(saved)


@pytest.mark.parametrize("change", [{"method": "emr"}, {"n_tasks": 7}, {"kept": []}, {"rows": []}, {"erda": "9"}])
def test_an_edited_file_is_rejected_although_it_is_valid(saved: Path, change: dict[str, object]) -> None:
    edit(saved, **change)
    with pytest.raises(ModelError, match=r"method\.json: was changed or damaged"):
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


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["write_bytes", "write_json"])
def test_a_full_disk_leaves_the_earlier_save(saved: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, files = scores(load(saved)), sorted(saved.iterdir())
    method = learned(2)
    with monkeypatch.context() as patch:
        patch.setattr(saving, place, full_disk)
        with pytest.raises(WriteError, match="No space left on device"):
            method.save(saved)
    np.testing.assert_array_equal(scores(load(saved)), before)
    assert sorted(saved.iterdir()) == files, "no partial files remain"
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]
    method.save(saved)
    assert load(saved).n_tasks == 2
    assert len(list(saved.iterdir())) == 2, "earlier weights are gone"


def test_settings_of_an_earlier_version_are_accepted_where_they_change_nothing() -> None:
    method = learned()
    former = {"names": False, "unit_embeddings": True}
    assert Erda.from_settings(toy_encoder(1), {**method.settings(), **former}).settings() == method.settings()
    with pytest.raises(SettingsError, match="whiten: is not a setting any more"):
        Erda.from_settings(toy_encoder(1), {**method.settings(), "whiten": True})


@pytest.mark.parametrize("place", [pytest.param("write_bytes", marks=pytest.mark.long), "write_json"])
def test_a_real_kill_while_writing_leaves_the_earlier_save(saved: Path, place: str) -> None:
    before = scores(load(saved))
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}\n"
        "from erda.methods import saving\n"
        "from test_saving import learned\n"
        f"saving.{place} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"learned(2).save(Path({str(saved)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert done.returncode == -9
    np.testing.assert_array_equal(scores(load(saved)), before)
    learned(1).save(saved)
    assert len(list(saved.iterdir())) == 2, "the next save tidies up"


def test_a_save_never_replaces_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = learned()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("mine")
    method.save(tmp_path / "mixed")
    (tmp_path / "mixed" / "notes.txt").write_text("mine too")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "method.json").write_text('{"name": "a project of mine"}')
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "method.json").write_text('{"format": 1}')
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "weights.safetensors").write_text("years of work")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("notes", "file", "mixed", "foreign", "older", "aside"):
        with pytest.raises(ModelError, match="holds other files than a saved method"):
            method.save(tmp_path / name)
    monkeypatch.chdir(tmp_path / "notes")
    with pytest.raises(ModelError, match="holds other files"):
        method.save(Path())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_below_a_file_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="Cannot save to"):
        learned().save(tmp_path / "file/model")


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_a_folder_that_cannot_exist_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="file name"):
        learned().save(tmp_path / name)
    with pytest.raises(DataError, match="file name"):
        load(tmp_path / name)
