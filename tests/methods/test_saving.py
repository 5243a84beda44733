"""A saved method survives full disks and kills, and a damaged one is named, never half loaded."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from erda.encoders.base import EncoderSpec
from erda.errors import ErdaError, ModelError, SettingsError
from erda.learning.memory import Memory
from erda.methods import saving
from erda.methods.base import Method
from erda.methods.erda import Erda
from erda.methods.saving import examples_from_json, examples_to_json, memory_from_json, memory_to_json
from toy_world import toy_encoder, toy_example, toy_questions, toy_task


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


def edit(folder: Path, **changes: object) -> None:
    about = json.loads((folder / "method.json").read_text(encoding="utf-8"))
    (folder / "method.json").write_text(json.dumps(about | changes), encoding="utf-8")


def test_examples_and_memory_come_back_as_they_were() -> None:
    examples = tuple(toy_example(0, row) for row in range(3))
    text = json.dumps(examples_to_json(examples))
    assert examples_from_json(json.loads(text)) == examples
    memory = Memory({"r1": examples[:1], "r0": examples[1:]})
    back = memory_from_json(json.loads(json.dumps(memory_to_json(memory))))
    assert back.exemplars == memory.exemplars
    assert list(back) == list(memory)


@pytest.mark.parametrize("name", ["method.json", "weights.safetensors"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(ModelError, match=rf"saved/{name} is missing"):
        load(saved)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere/method\.json is missing"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["method.json", "weights.safetensors"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_file_cut_short_is_refused_wherever_it_was_cut(saved: Path, name: str, part: float) -> None:
    whole = (saved / name).read_bytes()
    (saved / name).write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(ModelError, match="damaged"):
        load(saved)


@pytest.mark.parametrize("text", ["[]", "3", '"a"', "{}"])
def test_other_json_is_refused(saved: Path, text: str) -> None:
    (saved / "method.json").write_text(text)
    with pytest.raises(ModelError, match="has format None; this version reads format 1"):
        load(saved)


def test_text_of_another_encoding_is_refused(saved: Path) -> None:
    (saved / "method.json").write_bytes(b'{"format": "\xff"}')
    with pytest.raises(ModelError, match="damaged"):
        load(saved)


def test_what_another_version_wrote_is_refused(saved: Path) -> None:
    edit(saved, format=2)
    with pytest.raises(ModelError, match="has format 2; this version reads format 1"):
        load(saved)


def test_an_unknown_method_gets_the_nearest_name(saved: Path) -> None:
    edit(saved, method="erdaa")
    with pytest.raises(SettingsError, match="Did you mean 'erda'"):
        load(saved)


@pytest.mark.parametrize("change", [{"settings": {"flavour": 3}}, {"values": {}}, {"relations": [{"id": "r0"}]}])
def test_a_file_with_other_contents_is_refused(saved: Path, change: dict[str, object]) -> None:
    edit(saved, **change)
    with pytest.raises(ModelError, match="is not what erda"):
        load(saved)


def test_weights_that_lack_a_tensor_are_refused(saved: Path) -> None:
    tensors = load_file(saved / "weights.safetensors")
    for name in ("method.prototypes", "encoder.lstm.bias_hh_l0"):
        save_file({key: value for key, value in tensors.items() if key != name}, saved / "weights.safetensors")
        with pytest.raises(ModelError):
            load(saved)


def test_an_encoder_with_other_frozen_weights_is_refused(saved: Path) -> None:
    encoder = toy_encoder()
    encoder.spec = EncoderSpec("bilstm", encoder.spec.settings, "0123456789abcdef")
    with pytest.raises(ModelError, match=r"other weights of encoder 'bilstm' \(toy, not 01234567\)"):
        Method.load(saved, encoder=encoder)


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["weights", "text", "rename"])
def test_a_full_disk_leaves_the_earlier_save(saved: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scores(load(saved))
    method = learned(2)
    with monkeypatch.context() as patch:
        if place == "weights":
            patch.setattr(saving, "save_file", full_disk)
        elif place == "text":
            patch.setattr(Path, "write_text", full_disk)
        else:
            real, calls = Path.replace, []

            def second_fails(source: Path, target: Path) -> None:
                calls.append(source)
                (full_disk if len(calls) == 2 else real)(source, target)

            patch.setattr(Path, "replace", second_fails)
        with pytest.raises(ModelError, match=r"No space left on device.*untouched"):
            method.save(saved)
    np.testing.assert_array_equal(scores(load(saved)), before)
    assert [path.name for path in saved.parent.iterdir()] == ["saved"], "nothing half written stays behind"
    method.save(saved)
    assert load(saved).n_tasks == 2


class Killed(BaseException):
    pass


def test_a_kill_between_the_two_renames_loses_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scores(load(saved))
    method, real, calls = learned(2), Path.replace, []

    def die_at_second(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise Killed
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die_at_second)
        with pytest.raises(Killed):
            method.save(saved)
    assert not saved.exists()
    np.testing.assert_array_equal(scores(load(saved)), before)
    method.save(saved)
    assert load(saved).n_tasks == 2
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_a_real_kill_while_writing_leaves_the_earlier_save(saved: Path) -> None:
    before = scores(load(saved))
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}\n"
        "from erda.methods import saving\n"
        "from test_saving import learned\n"
        "saving.save_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"learned(1).save(Path({str(saved)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert done.returncode == -9
    np.testing.assert_array_equal(scores(load(saved)), before)


def test_a_save_never_takes_the_place_of_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = learned()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(ModelError, match="holds something else than a saved method"):
            method.save(tmp_path / name)
    monkeypatch.chdir(tmp_path / "notes")
    with pytest.raises(ModelError, match="holds something else"):
        method.save(Path())
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "a/b/c"):
        learned().save(tmp_path / name)
        assert load(tmp_path / name).n_tasks == 1


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"Cannot save to .*file/model"):
        learned().save(tmp_path / "file" / "model")


def test_a_save_can_be_moved(saved: Path, tmp_path: Path) -> None:
    before = scores(load(saved))
    shutil.move(saved, tmp_path / "elsewhere")
    np.testing.assert_array_equal(scores(load(tmp_path / "elsewhere")), before)
    with pytest.raises(ErdaError):
        load(saved)
