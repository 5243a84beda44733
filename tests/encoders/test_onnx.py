"""ONNX Runtime against PyTorch, the packaged file, and the cache of graphs."""

import copy
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree
from subprocess import run
from typing import Any

import numpy as np
import pytest
from tiny_models import SENTENCES, sentence

from erda.app.extractor import Extractor
from erda.corpus.similarity import SimilarityModel
from erda.encoders import TransformerSettings, build_encoder, onnx_build, onnx_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import BackgroundFile, Encoder, UnlabelledFile, save_background, save_unlabelled, unit_rows
from erda.encoders.frozen import FrozenCache
from erda.encoders.onnx_build import LARGEST
from erda.encoders.onnx_encoder import (
    GRAPH,
    TOKENIZER,
    OnnxEncoder,
    read_about,
)
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import MODELS, PACKAGED, ModelFolder, origin
from erda.errors import ModelError, SettingsError

LONG = sentence("berlin " + "the river in a city " * 30 + "paris", (0, 1), (151, 152))


def build(folder: ModelFolder, engine: str = "onnx", **settings: Any) -> Encoder:
    return build_encoder(str(folder.path), engine=engine, **{"mode": "markers", "trained_layers": 0, **settings})


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet"])
def test_vectors_equal_those_of_pytorch(folders: dict[str, ModelFolder], kind: str) -> None:
    expected, found = build(folders[kind], "torch"), build(folders[kind])
    assert isinstance(found, OnnxEncoder)
    assert found.dim == expected.dim
    sentences = [*SENTENCES, LONG]
    np.testing.assert_allclose(found.embed(sentences), expected.embed(sentences), atol=1e-4)
    blanked = found.embed(sentences, blanked=True), expected.embed(sentences, blanked=True)
    np.testing.assert_allclose(*blanked, atol=1e-4)
    assert found.embed([]).shape == (0, found.dim)
    assert found.spec.fingerprint == expected.spec.fingerprint
    assert not found.trained_state()


@pytest.mark.parametrize("engine", ["onnx", "onnx-int8"])
def test_a_vector_does_not_depend_on_its_batch(bert: ModelFolder, engine: str) -> None:
    encoder = build(bert, engine)
    together = encoder.embed(SENTENCES)
    alone = np.concatenate([encoder.embed([example]) for example in SENTENCES])
    np.testing.assert_array_equal(alone, together)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, together) for found in pool.map(encoder.embed, [SENTENCES] * 8))
    np.testing.assert_array_equal(copy.deepcopy(encoder).embed(SENTENCES), together)
    assert 255 * LARGEST * 2 < 2**15, "x86 without VNNI adds two products in 16 bits"


# -- the packaged file -------------------------------------------------------------------------------------------------


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


# -- graphs built from weights -----------------------------------------------------------------------------------------


def test_settings_select_the_graph(bert: ModelFolder) -> None:
    plain, short, int8 = build(bert), build(bert, max_pieces=12), build(bert, "onnx-int8")
    assert not np.array_equal(plain.embed([LONG]), short.embed([LONG]))
    assert not np.array_equal(plain.embed(SENTENCES), int8.embed(SENTENCES))


@pytest.mark.parametrize(
    "given",
    [{"mode": "paper"}, {"trained_layers": 1}, {"trained_layers": -2}, {"projection": 4}, {"precision": "bf16"}],
)
def test_unsupported_settings_and_models_are_rejected(folders: dict[str, ModelFolder], given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="frozen encoders"):
        build(folders["bert"], **given)
    with pytest.raises(SettingsError, match="electra"):
        build(folders["electra"])


def test_encoders_share_a_vector_cache(bert: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FrozenCache()
    first, second = build(bert, cache=cache), build(bert, cache=cache)
    vectors = first.embed(SENTENCES)
    monkeypatch.setattr(second, "_vector", lambda pieces: pytest.fail("everything is cached"))
    np.testing.assert_array_equal(second.embed(SENTENCES[::-1]), vectors[::-1])
    assert second.embed([]).shape == (0, second.dim)


def test_the_similarity_model_in_int8(bert: ModelFolder) -> None:
    expected, found = SimilarityModel(bert), SimilarityModel(bert, dtype="int8")
    assert isinstance(found.encoder, OnnxEncoder)
    assert found.fingerprint == expected.fingerprint
    cosines = (found.encode(SENTENCES) * expected.encode(SENTENCES)).sum(axis=1)
    assert (cosines > 0.95).all()
    assert (cosines < 0.99999).all()


def test_a_built_encoder_averages_layers_and_has_statistics(
    bert: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`erda data get mpnet`: files of an earlier version are built again, current ones stay."""
    settings = TransformerSettings(mode="markers")
    fresh = TrainedWeights.fresh(TransformerEncoder(bert, settings).layers, base=origin(bert), max_pieces=128, rank=1)
    monkeypatch.setattr(onnx_build, "packaged_weights", lambda name: replace(fresh, pooled_layers=2))
    monkeypatch.setattr(onnx_build, "find_model", lambda name: bert)
    monkeypatch.setattr(onnx_build, "adapter_folder", lambda name, base: tmp_path / "adapter")
    built, said = tmp_path / "built", list[str]()
    monkeypatch.setattr(onnx_build, "packaged_folder", lambda name: built)
    with pytest.raises(ModelError, match="no statistics of encoder 'mpnet'; install the adapter of this version"):
        onnx_build.get_packaged("mpnet", say=said.append)
    shipped, made_with = PACKAGED / "minilm", read_about(PACKAGED / "minilm").fingerprint
    source, background = UnlabelledFile(shipped, made_with).read(), BackgroundFile(shipped, made_with).read()
    assert source is not None
    assert background is not None
    statistics, weights = tmp_path / "adapter" / onnx_build.STATISTICS, replace(fresh, pooled_layers=2)
    save_unlabelled(statistics, source, weights.fingerprint)
    save_background(statistics, background, weights.fingerprint)
    make = partial(
        onnx_build.pack_encoder, bert, TransformerSettings(adapter="shipped", engine="packaged", trained_layers=0)
    )
    make(weights=fresh).write(built)  # one layer, as earlier
    for n_built in (1, 1):
        onnx_build.get_packaged("mpnet", say=said.append)
        assert sum("Building" in one for one in said) == n_built + 1
    about = read_about(built)
    assert about.fingerprint == make(weights=weights).about.fingerprint != make(weights=fresh).about.fingerprint
    copied = UnlabelledFile(built, about.fingerprint).read()
    assert copied is not None
    assert np.array_equal(source.vectors, copied.vectors)


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
