"""The packaged encoder `open`: its files, settings and statistics."""

import json
import sys
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from tiny_models import SENTENCES

from erda.app.extractor import Extractor
from erda.encoders import build_encoder, onnx_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import UNLABELLED, UnlabelledFile
from erda.encoders.onnx_encoder import GRAPH, TOKENIZER, OnnxEncoder, read_about
from erda.encoders.weights import PACKAGED, adapter_folder
from erda.errors import ModelError, SettingsError
from erda.methods import find_method


def test_the_packaged_encoder_says_how_it_was_trained() -> None:
    encoder = build_encoder("open")
    assert isinstance(encoder, OnnxEncoder)
    assert (encoder.about.mode, encoder.engine, encoder.pooled_layers) == ("starts", "onnx-int8", 2)
    assert len(encoder.about.trained_on) == 119
    report = json.loads((PACKAGED / "open" / "training.json").read_text())
    assert (report["settings"]["mode"], report["settings"]["objective"]) == ("starts", "distil")
    vectors = encoder.embed(SENTENCES)
    assert vectors.shape == (len(SENTENCES), encoder.dim)
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("file", [GRAPH, TOKENIZER])
def test_a_damaged_packaged_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    copytree(PACKAGED / "open", tmp_path / "open")
    monkeypatch.setattr(onnx_encoder, "PACKAGED", tmp_path)
    content = bytearray((tmp_path / "open" / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "open" / file).write_bytes(content)
    with pytest.raises(ModelError):
        build_encoder("open").embed(SENTENCES)


def test_the_files_of_open_mpnet_are_looked_for_in_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="erda data get open-mpnet"):
        Extractor.open(tmp_path / "store", encoder="open-mpnet").teach("founded by", ["[[Apple]] by {{Steve}}"])
    copytree(PACKAGED / "open", tmp_path / "encoders" / "open-mpnet")
    extractor = Extractor.open(tmp_path / "store", encoder="open-mpnet")
    extractor.teach("founded by", ["[[Apple]] was founded by {{Steve}} ."])
    assert extractor.version.method.encoder.spec.name == "open-mpnet"


def test_the_packaged_encoder_is_frozen_and_has_no_settings() -> None:
    for given in ({"trained_layers": 1}, {"adapter": ""}, {"engine": "torch"}):
        with pytest.raises(SettingsError, match=next(iter(given))):
            build_encoder("open", **given)
    with pytest.raises(SettingsError, match="'emr' trains its encoder, but encoder 'open' is frozen; use minilm"):
        find_method("emr").from_settings(build_encoder("open"), {})


@pytest.mark.parametrize("damage", ["missing", "of other weights"])
def test_a_packaged_encoder_without_its_statistics_is_rejected(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them the same store would give other answers."""
    folder = tmp_path / "open"
    folder.mkdir()
    for path in (PACKAGED / "open").iterdir():
        (folder / path.name).symlink_to(path)
    (folder / UNLABELLED).unlink()
    if damage != "missing":
        arrays = dict(np.load(PACKAGED / "open" / UNLABELLED))
        np.savez(folder / UNLABELLED, **(arrays | {"fingerprint": np.array("0" * 64)}))
    monkeypatch.setattr(onnx_encoder, "PACKAGED", tmp_path)
    encoder = build_encoder("open")
    with pytest.raises(ModelError, match=rf"{UNLABELLED}.*Reinstall erda"):
        encoder.unlabelled()


@pytest.mark.parametrize(("name", "dim"), [("open", 768), ("open-mpnet", 1536)])
def test_shipped_weights_have_their_statistics(name: str, dim: int) -> None:
    folder = PACKAGED / "open" if name == "open" else adapter_folder("shipped", base="mpnet") / "open"
    made_by = read_about(folder) if name == "open" else TrainedWeights.load(folder, base="mpnet")
    pairs = UnlabelledFile(folder, made_by.fingerprint).read()
    assert pairs is not None, "new weights: python tools/build_encoder.py"
    assert pairs.centres.shape == (600, dim)


def test_a_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = build_encoder("open")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match="pip install onnxruntime"):
        encoder.embed(SENTENCES)
