"""Adapters are merged into the pretrained weights and rejected for another model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES, encoder_of

from erda.corpus.similarity import SimilarityModel
from erda.encoders import PooledLayers, TransformerSettings, build_encoder, encoder_settings
from erda.encoders.adapter import TrainedWeights, adapter_folder
from erda.encoders.trainable import embed
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import ModelFolder, origin
from erda.errors import ModelError, SettingsError

ADAPTED = ("minilm", "mpnet")


@pytest.fixture(scope="module")
def trained(folders: dict[str, ModelFolder], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an adapter over the tiny BERT, as `erda corpus train` writes it."""
    encoder = encoder_of(folders["bert"], mode="markers")
    fresh = TrainedWeights.fresh(encoder.layers, base=origin(folders["bert"]), max_pieces=20, rank=2)
    generator = torch.Generator().manual_seed(0)
    drawn = {name: one + 0.1 * torch.randn(one.shape, generator=generator) for name, one in fresh.tensors.items()}
    out = tmp_path_factory.mktemp("trained")
    replace(fresh, tensors=drawn).save(out)
    return out


@pytest.mark.parametrize("n_trained", [-1, 1, 0])
def test_an_adapter_is_merged_and_sets_mode_and_limit(bert: ModelFolder, trained: Path, n_trained: int) -> None:
    encoder = build_encoder(str(bert.path), adapter=str(trained), trained_layers=n_trained)
    assert isinstance(encoder, TransformerEncoder)
    assert (encoder.mode, encoder.tokenizer.limit, encoder.dim) == ("markers", 20, 32)
    expected = SimilarityModel(bert, TrainedWeights.load(trained)).encode(SENTENCES)
    found = torch.nn.functional.normalize(embed(encoder, SENTENCES), dim=1)
    assert np.allclose(found.numpy(), expected, atol=1e-5)
    assert len(encoder.trained_parameters()) == {-1: len(list(encoder.parameters())), 1: 16, 0: 0}[n_trained]
    again = build_encoder(encoder.spec.name, **encoder.spec.settings)
    assert again.spec == encoder.spec
    assert encoder.spec.fingerprint == TrainedWeights.load(trained).fingerprint != bert.fingerprint
    again.load_trained_state(encoder.trained_tensors())  # empty if no layer is trained
    assert again.device == torch.device("cpu")


@pytest.mark.parametrize(("pooled", "n_trained"), [(2, -1), (2, 1), (2, 0), (3, -1), (3, 2), (3, 0)])
@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_pooled_layers_are_averaged(
    folders: dict[str, ModelFolder], name: str, pooled: PooledLayers, n_trained: int
) -> None:
    folder = folders[name]
    whole = encoder_of(folder, mode="markers")
    fresh = TrainedWeights.fresh(whole.layers, base=origin(folder), max_pieces=20, rank=2)
    weights = replace(fresh, pooled_layers=pooled)
    assert weights.fingerprint != fresh.fingerprint
    pieces = whole.tokenizer.encode(SENTENCES)
    ids, lengths, places = whole._collate(pieces)
    n_layers = whole.layers.n_layers
    layers = [
        whole.layers.run(whole.layers.embed(ids), lengths, 0, stop, places).flatten(1)
        for stop in range(n_layers - pooled + 1, n_layers + 1)
    ]
    expected = torch.stack([torch.nn.functional.normalize(one, dim=1) for one in layers]).mean(0)
    settings = TransformerSettings(mode="markers", trained_layers=n_trained)
    found = TransformerEncoder(folder, settings, weights=weights).encode_pieces(pieces)
    assert torch.allclose(found, expected, atol=1e-5)
    with pytest.raises(ModelError, match="cannot pool 9 layers"):
        TransformerEncoder(folder, settings, weights=replace(fresh, pooled_layers=9))


def test_the_setting_pooled_layers_replaces_the_adapters_own(bert: ModelFolder, trained: Path) -> None:
    one, two, own = (build_encoder(str(bert.path), adapter=str(trained), pooled_layers=n) for n in (1, 2, 0))
    assert one.spec.fingerprint == own.spec.fingerprint != two.spec.fingerprint
    assert np.allclose(one.embed(SENTENCES), own.embed(SENTENCES))
    assert not np.allclose(one.embed(SENTENCES), two.embed(SENTENCES), atol=1e-3)
    with two.last_layer():
        assert np.allclose(one.embed(SENTENCES), two.embed(SENTENCES))
    assert not np.allclose(one.embed(SENTENCES), two.embed(SENTENCES), atol=1e-3)
    with pytest.raises(SettingsError, match="pooled_layers"):
        build_encoder(str(bert.path), pooled_layers=2)


def test_mismatched_adapters_are_rejected(folders: dict[str, ModelFolder], trained: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mode 'paper' cannot use an adapter"):
        build_encoder(str(folders["bert"].path), adapter=str(trained), mode="paper")
    with pytest.raises(ModelError, match=r"The adapter was trained over .*/bert' .* not over .*/mpnet'"):
        build_encoder(str(folders["mpnet"].path), adapter=str(trained))
    with pytest.raises(ModelError, match=r"No adapter at .*: expected 'shipped' or a folder"):
        build_encoder("minilm", adapter=str(tmp_path))


def test_shipped_adapters(bert: ModelFolder) -> None:
    sizes = {name: (adapter_folder("shipped", base=name) / "adapter.safetensors").stat().st_size for name in ADAPTED}
    assert sizes["minilm"] < 8_000_000
    assert sizes["mpnet"] < 32_000_000
    assert all(TrainedWeights.load("shipped", base=name).base.name == name for name in ADAPTED)
    assert {name: encoder_settings(name)(mode="paper").adapter for name in ADAPTED} == dict.fromkeys(ADAPTED, "")
    assert encoder_settings(str(bert.path))().adapter == ""
    with pytest.raises(ModelError, match="only for minilm and mpnet"):
        build_encoder(str(bert.path), adapter="shipped")
