from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES

from erda.corpus.similarity import SimilarityModel, load_similarity
from erda.encoders import TransformerSettings
from erda.encoders.adapter import SETTINGS_FILE, TrainedWeights
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import origin
from erda.errors import ModelError, SettingsError


def encoder_of(folder):
    return TransformerEncoder(folder, TransformerSettings(mode="markers", max_pieces=40))


def fresh(folder, **how):
    return TrainedWeights.fresh(encoder_of(folder).layers, base=origin(folder), max_pieces=40, **how)


@pytest.fixture(scope="module")
def adapter(folder) -> TrainedWeights:
    weights = fresh(folder, rank=3, scale=0.5, seed=1)
    generator = torch.Generator().manual_seed(2)
    drawn = {name: torch.randn(one.shape, generator=generator).mul(0.3).half() for name, one in weights.tensors.items()}
    return replace(weights, tensors=drawn)


def test_vectors_are_unit_vectors_in_any_batches(folder):
    model = SimilarityModel(folder)
    vectors = model.encode(SENTENCES, batch_size=4)
    assert vectors.shape == (len(SENTENCES), model.dim) == (6, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(vectors, model.encode(SENTENCES[::-1], batch_size=1)[::-1], atol=1e-6)
    assert model.encode([]).shape == (0, model.dim)


def test_fingerprints_differ_between_models_and_stay(folder, adapter):
    models = [
        SimilarityModel(folder),
        SimilarityModel(folder, max_pieces=20),
        SimilarityModel(folder, adapter),
        SimilarityModel(folder, replace(adapter, scale=0.25)),
    ]
    assert len({model.fingerprint for model in models}) == 4
    packaged = load_similarity()
    assert packaged.fingerprint == "d031331ed316544632da1b58d292a04071aa247b055edb5ca540dfe68504eafa"
    assert packaged.encoder.tokenizer.limit == 128


@pytest.mark.parametrize("kind", ["adapter", "full"])
def test_a_saved_model_loads(folder, adapter, tmp_path, kind):
    weights = adapter
    if kind == "full":
        whole = fresh(folder, rank=0)
        name = next(name for name in whole.tensors if name.endswith("0.intermediate.dense.weight"))
        weights = replace(whole, tensors={**whole.tensors, name: -whole.tensors[name]})
    model = SimilarityModel(folder, weights)
    weights.save(tmp_path / "model")
    again = load_similarity(tmp_path / "model")
    assert again.fingerprint == model.fingerprint
    assert again.weights.kind == kind
    assert again.encoder.tokenizer.limit == 40
    np.testing.assert_array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    untrained = load_similarity(str(folder.path))
    assert abs(untrained.encode(SENTENCES) - model.encode(SENTENCES)).max() > 1e-3


def test_a_damaged_adapter_is_rejected(folder, adapter, tmp_path):
    adapter.save(tmp_path)
    path = tmp_path / "adapter.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="sha256"):
        load_similarity(tmp_path)
    path.unlink()
    with pytest.raises(ModelError):
        load_similarity(tmp_path)
    (tmp_path / SETTINGS_FILE).write_text("{")
    with pytest.raises(ModelError, match=SETTINGS_FILE):
        load_similarity(tmp_path)


def test_invalid_arguments_raise(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for error, call in (
        (ModelError, lambda: load_similarity(tmp_path / "missing")),
        (ModelError, lambda: TrainedWeights("prompt", {}, origin(folder), 40)),
        (SettingsError, lambda: SimilarityModel(folder, dtype="float16")),
        (SettingsError, lambda: SimilarityModel(folder, device="nonsense")),
        (SettingsError, lambda: SimilarityModel(folder, device="cuda")),
    ):
        with pytest.raises(error):
            call()


def test_bfloat16_is_close_or_rejected(folder):
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(SettingsError):
            SimilarityModel(folder, dtype="bfloat16")
        return
    exact, rounded = (SimilarityModel(folder, dtype=dtype).encode(SENTENCES) for dtype in ("float32", "bfloat16"))
    assert (exact * rounded).sum(axis=1).min() > 0.98
