"""The packaged encoder: its files, settings and statistics."""

import os
import sys
from pathlib import Path
from shutil import copytree
from subprocess import run
from typing import Any

import numpy as np
import pytest
from tiny_models import SENTENCES

from erda.app.extractor import Extractor
from erda.encoders import build_encoder, onnx_encoder
from erda.encoders.contract import unit_rows
from erda.encoders.onnx_encoder import (
    GRAPH,
    TOKENIZER,
)
from erda.encoders.weights import MODELS, PACKAGED, ModelFolder
from erda.errors import ModelError, SettingsError


def test_the_packaged_file_is_close_to_float32() -> None:
    expected = build_encoder("minilm", trained_layers=0, pooled_layers=MODELS["minilm"].pooled_layers)
    found = build_encoder("minilm", trained_layers=0, engine="packaged")
    cosines = (unit_rows(found.embed(SENTENCES)) * unit_rows(expected.embed(SENTENCES))).sum(axis=1)
    assert cosines.min() > 0.98
    assert cosines.max() < 0.99999, "it is int8"


@pytest.mark.parametrize("file", [GRAPH, TOKENIZER])
def test_a_damaged_packaged_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    copytree(PACKAGED / "minilm", tmp_path / "minilm")
    monkeypatch.setattr(onnx_encoder, "PACKAGED", tmp_path)
    content = bytearray((tmp_path / "minilm" / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "minilm" / file).write_bytes(content)
    with pytest.raises(ModelError):
        build_encoder("minilm", trained_layers=0, engine="packaged").embed(SENTENCES)


def test_the_files_of_mpnet_are_looked_for_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="erda data get mpnet"):
        build_encoder("mpnet", trained_layers=0, engine="packaged")
    with pytest.raises(ModelError, match="erda data get mpnet"):
        Extractor.open(tmp_path / "store", encoder="mpnet").teach("founded by", ["[[Apple]] by {{Steve}}"])
    copytree(PACKAGED / "minilm", tmp_path / "encoders" / "mpnet")
    extractor = Extractor.open(tmp_path / "store", encoder="mpnet")
    extractor.teach("founded by", ["[[Apple]] was founded by {{Steve}} ."])
    spec = extractor.version.method.encoder.spec
    assert (spec.name, spec.settings["engine"]) == ("mpnet", "packaged")


@pytest.mark.parametrize("given", [{"trained_layers": 1}, {"max_pieces": 12}, {"adapter": ""}, {"projection": 4}])
def test_the_packaged_file_rejects_other_settings_and_models(bert: ModelFolder, given: dict[str, Any]) -> None:
    for name, changed in (("minilm", given), (str(bert.path), {})):
        with pytest.raises(SettingsError):
            build_encoder(name, engine="packaged", **{"trained_layers": 0, **changed})


@pytest.mark.parametrize("file", ["background.npz", "unlabelled.npz"])
@pytest.mark.parametrize("damage", ["missing", "of other weights"])
def test_a_packaged_encoder_without_its_statistics_is_rejected(
    file: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them the same store would give other answers."""
    folder = tmp_path / "minilm"
    folder.mkdir()
    for path in (PACKAGED / "minilm").iterdir():
        (folder / path.name).symlink_to(path)
    (folder / file).unlink()
    if damage != "missing":
        arrays = dict(np.load(PACKAGED / "minilm" / file))
        np.savez(folder / file, **(arrays | {"fingerprint": np.array("0" * 64)}))
    monkeypatch.setattr(onnx_encoder, "PACKAGED", tmp_path)
    encoder = build_encoder("minilm", adapter="shipped", engine="packaged", trained_layers=0)
    with pytest.raises(ModelError, match=rf"{file}.*Reinstall erda"):
        encoder.background() if file == "background.npz" else encoder.unlabelled()


def test_a_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = build_encoder("minilm", adapter="shipped", engine="packaged", trained_layers=0)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match="pip install onnxruntime"):
        encoder.embed(SENTENCES)


def test_the_runtime_reports_nothing_to_its_maker(tmp_path: Path) -> None:
    code = (
        "from erda.encoders import build_encoder; from erda.text.marks import example_from_marks; "
        "build_encoder('minilm', adapter='shipped', engine='packaged', trained_layers=0)"
        ".embed([example_from_marks('[[a]] {{b}}')])"
    )
    silent = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")  # each of them silences it, too
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    homes = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    run([sys.executable, "-c", code], env={**environment, **homes}, check=True)
    assert not [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name]
