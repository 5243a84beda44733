"""ONNX Runtime beside PyTorch: the same vectors, graphs that are kept and checked, and life without it."""

import copy
import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import SENTENCES, sentence

from erda.app.extractor import Extractor
from erda.corpus.similarity import SimilarityModel
from erda.encoders import build_encoder, onnx_encoder
from erda.encoders.base import Encoder, embed
from erda.encoders.frozen import FrozenCache
from erda.encoders.onnx_encoder import ABOUT, GRAPH, OnnxEncoder
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder
from erda.errors import SettingsError
from erda.methods import METHODS
from erda.methods.base import Method
from erda.types import Relation, Task

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install 'erda[onnx]'")

TEXTS = ["capital of", "born in the city", ""]
LONG = sentence("berlin " + "the river in a city " * 30 + "paris", (0, 1), (151, 152))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnx"


def build(folder: ModelFolder, engine: str = "onnx", **settings: Any) -> Encoder:
    given = {"mode": "markers", "trained_layers": 0, **settings}
    return build_encoder(str(folder.path), engine=engine, **given)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet"])
def test_the_vectors_are_those_of_pytorch(folders: dict[str, ModelFolder], kind: str) -> None:
    expected, found = build(folders[kind], "torch"), build(folders[kind])
    assert isinstance(found, OnnxEncoder)
    assert found.dim == expected.dim
    sentences = [*SENTENCES, LONG]
    with torch.no_grad():
        assert torch.allclose(found.encode(sentences), expected.encode(sentences), atol=1e-4)
        assert torch.allclose(found.encode_blanked(sentences), expected.encode_blanked(sentences), atol=1e-4)
        assert torch.allclose(found.encode_texts(TEXTS), expected.encode_texts(TEXTS), atol=1e-4)
    assert found.encode([]).shape == (0, found.dim)
    assert found.spec.fingerprint == expected.spec.fingerprint
    assert not found.trained_parameters()


@pytest.mark.parametrize("engine", ["onnx", "onnx-int8"])
def test_a_vector_depends_on_its_sentence_alone(bert: ModelFolder, engine: str) -> None:
    encoder = build(bert, engine)
    together = encoder.encode(SENTENCES)
    assert all(torch.equal(encoder.encode([one])[0], row) for one, row in zip(SENTENCES, together, strict=True))
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(found, together) for found in pool.map(encoder.encode, [SENTENCES] * 8))
    assert copy.deepcopy(encoder).encode(SENTENCES).equal(together)


def test_int8_is_close_with_the_shipped_adapter() -> None:
    settings: dict[str, Any] = {"adapter": "shipped", "trained_layers": 0}
    expected = build_encoder("minilm", **settings)
    found = build_encoder("minilm", engine="auto", **settings)
    assert isinstance(found, OnnxEncoder)
    cosines = torch.cosine_similarity(embed(found, SENTENCES), embed(expected, SENTENCES))
    assert cosines.min() > 0.98
    assert (cosines < 0.99999).all() == (found.engine == "onnx-int8")


def test_the_graph_is_made_once(bert: ModelFolder, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = build(bert).encode(SENTENCES)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(onnx_encoder, "_make", None)
    assert build(bert).encode(SENTENCES).equal(vectors)


@pytest.mark.parametrize("file", [GRAPH, ABOUT, "tokenizer.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_graph_is_made_again(bert: ModelFolder, cache: Path, file: str, damage: str) -> None:
    vectors = build(bert).encode(SENTENCES)
    (place,) = cache.rglob(file)
    whole = place.read_bytes()
    place.unlink() if damage == "gone" else place.write_bytes(whole[: len(whole) // 2])
    assert build(bert).encode(SENTENCES).equal(vectors)
    assert place.read_bytes() == whole


def test_a_graph_of_another_version_is_made_again(bert: ModelFolder, cache: Path) -> None:
    build(bert)
    (place,) = cache.rglob(ABOUT)
    place.write_text(json.dumps(json.loads(place.read_text()) | {"version": 99}))
    build(bert)
    assert json.loads(place.read_text())["version"] == onnx_encoder.VERSION


def test_without_a_cache_folder_it_works_all_the_same(bert: ModelFolder, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="made anew each time"):
        assert build(bert).encode(SENTENCES).shape == (len(SENTENCES), 32)


def test_other_settings_have_other_graphs(bert: ModelFolder, cache: Path) -> None:
    plain, short, int8 = build(bert), build(bert, max_pieces=12), build(bert, "onnx-int8")
    assert len(list(cache.iterdir())) == 3
    assert not torch.equal(plain.encode([LONG]), short.encode([LONG]))
    assert not torch.equal(plain.encode(SENTENCES), int8.encode(SENTENCES))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "paper"}, "frozen encoders"),
        ({"trained_layers": 1}, "trained_layers 0"),
        ({"trained_layers": -2}, "trained_layers 0"),
        ({"projection": 4}, "projection 0"),
        ({"precision": "bf16"}, "precision 'fp32'"),
    ],
)
def test_what_does_not_fit(bert: ModelFolder, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        build(bert, **given)
    assert isinstance(build(bert, "auto", **given), TransformerEncoder)


def test_other_architectures_stay_with_pytorch(folders: dict[str, ModelFolder]) -> None:
    with pytest.raises(SettingsError, match="not 'electra'"):
        build(folders["electra"])
    assert isinstance(build(folders["electra"], "auto"), TransformerEncoder)


def test_without_onnx_runtime(bert: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "onnxruntime" else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(onnx_encoder, "find_spec", hidden)
    with pytest.raises(SettingsError, match=r"pip install 'erda\[onnx\]'"):
        build(bert)
    assert isinstance(build(bert, "auto"), TransformerEncoder)


def test_frozen_states_are_kept(bert: ModelFolder, tmp_path: Path) -> None:
    kept = FrozenCache(tmp_path / "states")
    first, plain = build(bert, cache=kept), build(bert)
    assert first.encode(SENTENCES).equal(plain.encode(SENTENCES))
    assert first.encode(SENTENCES[::-1]).equal(plain.encode(SENTENCES[::-1]))
    assert kept.used_bytes() > len(SENTENCES) * first.dim * 4
    first._session = None  # type: ignore[assignment]
    assert first.encode(SENTENCES).equal(plain.encode(SENTENCES))


def test_a_method_over_it_is_saved_and_loaded(bert: ModelFolder, tmp_path: Path) -> None:
    method = METHODS["posterior"](build(bert))
    examples = tuple(
        sentence(
            " ".join(one.tokens),
            (one.head.span.start, one.head.span.end),
            (one.tail.span.start, one.tail.span.end),
            relation=name,
        )
        for one, name in zip(SENTENCES, "aabbab", strict=True)
    )
    method.learn(Task(0, (Relation("a", "a"), Relation("b", "b")), examples))
    method.save(tmp_path / "saved")
    again = Method.load(tmp_path / "saved")
    assert isinstance(again.encoder, OnnxEncoder)
    assert (again.predict(SENTENCES).scores == method.predict(SENTENCES).scores).all()


def test_the_similarity_model_in_int8(bert: ModelFolder) -> None:
    expected, found = SimilarityModel(bert), SimilarityModel(bert, dtype="int8")
    assert isinstance(found.encoder, OnnxEncoder)
    assert found.fingerprint == expected.fingerprint
    cosines = (found.encode(SENTENCES) * expected.encode(SENTENCES)).sum(axis=1)
    assert (cosines > 0.95).all()
    assert (cosines < 0.99999).all()


def test_an_extractor_uses_it(tmp_path: Path) -> None:
    extractor = Extractor.open(tmp_path / "store")
    extractor.teach(
        {"capital of": ["[[Paris]] is the capital of {{France}} ."], "born in": ["[[Ann]] , born in {{Rome}} ."]}
    )
    assert isinstance(extractor.version.method.encoder, OnnxEncoder)
    answer = extractor.predict("[[Berlin]] is the capital of {{Germany}} .")
    assert answer.ranked[0].relation == "capital of"
