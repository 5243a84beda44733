"""Graphs built from weights against PyTorch, and `erda data get open-mpnet`."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import SENTENCES, encoder_of, sentence

from erda.app.export import _packed
from erda.corpus.similarity import SimilarityModel
from erda.encoders import TransformerSettings, build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.contract import Encoder, UnlabelledFile, save_unlabelled, unit_rows
from erda.encoders.frozen import FrozenCache
from erda.encoders.onnx_encoder import OnnxEncoder, read_about
from erda.encoders.tokens import shared_runs
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import PACKAGED, ModelFolder, origin
from erda.errors import ModelError, SettingsError
from erda.files import write_arrays
from erda.methods.posterior import Posterior
from erda_mpnet import onnx_build

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


@pytest.mark.parametrize("mode", ["levitated", "starts"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet"])
def test_pairs_share_a_run_if_marks_are_levitated(folders: dict[str, ModelFolder], kind: str, mode: str) -> None:
    spans = [(0, 1), (2, 4), (5, 6)]
    pairs = [sentence("berlin the river in a paris", one, two) for one in spans for two in spans if one != two]
    found = build(folders[kind], mode=mode)
    assert isinstance(found, OnnxEncoder)
    assert [len(rows) for rows in shared_runs(found.tokenizer.encode([*pairs, LONG]))] == [len(pairs), 1]
    together = found.embed([*pairs, LONG])
    np.testing.assert_allclose(together, build(folders[kind], "torch", mode=mode).embed([*pairs, LONG]), atol=1e-4)
    np.testing.assert_allclose(together[:1], found.embed(pairs[:1]), atol=1e-5)
    settings = TransformerSettings(mode=mode, trained_layers=0, engine="onnx-int8")
    ranges = onnx_build.input_ranges(TransformerEncoder(folders[kind], settings))
    packed = onnx_build.pack_encoder(folders[kind], settings, weights=None, ranges=ranges)
    by_columns = OnnxEncoder(packed.about, lambda: packed, found.spec)
    for one in (build(folders[kind], "onnx-int8", mode=mode), by_columns):
        whole = unit_rows(one.embed([*pairs, LONG]))
        assert (whole * unit_rows(together)).sum(axis=1).min() > 0.98


@pytest.mark.parametrize("engine", ["onnx", "onnx-int8"])
def test_a_vector_does_not_depend_on_its_batch(bert: ModelFolder, engine: str) -> None:
    encoder = build(bert, engine)
    together = encoder.embed(SENTENCES)
    alone = np.concatenate([encoder.embed([example]) for example in SENTENCES])
    np.testing.assert_array_equal(alone, together)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, together) for found in pool.map(encoder.embed, [SENTENCES] * 8))
    np.testing.assert_array_equal(copy.deepcopy(encoder).embed(SENTENCES), together)
    assert 255 * onnx_build.LARGEST * 2 < 2**15, "x86 without VNNI adds two products in 16 bits"


@pytest.mark.parametrize("pooled", [2, 3])
@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_pooled_layers_are_averaged(folders: dict[str, ModelFolder], name: str, pooled: int) -> None:
    settings = TransformerSettings(mode="markers", trained_layers=0)
    fresh = TrainedWeights.fresh(encoder_of(folders[name]).layers, base=origin(folders[name]), max_pieces=20, rank=2)
    trained = replace(fresh, pooled_layers=pooled)
    expected = TransformerEncoder(folders[name], settings, weights=trained).embed(SENTENCES)
    onnx = settings.model_copy(update={"engine": "onnx"})
    found = onnx_build.open_onnx(folders[name], onnx, weights=trained, device="cpu")
    assert np.allclose(found.embed(SENTENCES), expected, atol=1e-5)


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
    monkeypatch.setattr(second, "_run", lambda pieces: pytest.fail("everything is cached"))
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
    """`erda data get open-mpnet`: files of an earlier version are built again, current ones stay."""
    settings = TransformerSettings(mode="markers")
    fresh = TrainedWeights.fresh(TransformerEncoder(bert, settings).layers, base=origin(bert), max_pieces=128, rank=1)
    pooled, own, built, said = replace(fresh, pooled_layers=2), tmp_path / "own", tmp_path / "built", list[str]()
    pooled.save(own)
    monkeypatch.setattr(onnx_build, "OPEN", own)
    monkeypatch.setattr(onnx_build, "find_model", lambda name: bert)
    monkeypatch.setattr(onnx_build, "packaged_folder", lambda name: built)
    with pytest.raises(ModelError, match="no statistics of encoder 'open-mpnet'; reinstall erda-mpnet"):
        onnx_build.get_packaged("open-mpnet", say=said.append)
    shipped, made_with = PACKAGED / "open", read_about(PACKAGED / "open").fingerprint
    source = UnlabelledFile(shipped, made_with).read()
    assert source is not None
    save_unlabelled(own, source, pooled.fingerprint)
    ranges = onnx_build.input_ranges(TransformerEncoder(bert, TransformerSettings(mode="levitated")))
    (own / onnx_build.RANGES).write_bytes(b"PK cut")
    with pytest.raises(ModelError, match=r"ranges.npz: is damaged .*Reinstall erda-mpnet"):
        onnx_build.get_packaged("open-mpnet", say=said.append)
    said.clear()
    write_arrays(own / onnx_build.RANGES, {"ranges": ranges})
    earlier = onnx_build.pack_weights(fresh)
    earlier.write(built)  # one layer
    for _ in range(2):  # the second time nothing is built
        onnx_build.get_packaged("open-mpnet", say=said.append)
        assert sum("Building" in one for one in said) == 1
    about = read_about(built)
    assert (
        about.fingerprint
        == onnx_build.pack_weights(pooled, ranges=ranges).about.fingerprint
        != earlier.about.fingerprint
    )
    copied = UnlabelledFile(built, about.fingerprint).read()
    assert copied is not None
    assert np.array_equal(source.centres, copied.centres)
    assert np.array_equal(source.vectors, copied.vectors)


def test_an_export_averages_as_many_layers_as_its_encoder(bert: ModelFolder, tmp_path: Path) -> None:
    layers = TransformerEncoder(bert, TransformerSettings()).layers
    TrainedWeights.fresh(layers, base=origin(bert), max_pieces=128, rank=1).save(tmp_path)
    encoder = build_encoder(str(bert.path), adapter=str(tmp_path), trained_layers=0, pooled_layers=2)
    assert _packed(Posterior(encoder), "onnx").about.pooled_layers == 2


def test_engines_name_the_package_that_builds_them(bert: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "erda_mpnet.onnx_build", None)
    with pytest.raises(ModelError, match=r"needs the package erda-mpnet.*pip install packages/erda-mpnet"):
        build(bert)
