"""The transformer computes the same vectors with and without the cache of frozen layers."""

import copy
from pathlib import Path

import pytest
import torch
from tiny_models import SENTENCES, TEXTS, build_model, encoder_of
from torch import Tensor

from erda.encoders.frozen import FrozenCache
from erda.encoders.trainable import embed
from erda.encoders.transformer import MIN_ROWS, TransformerEncoder
from erda.encoders.weights import ModelFolder

CASES = [
    ("bert", "paper", 0),
    ("bert", "paper", 1),
    ("bert", "markers", 2),
    ("bert", "markers", -1),
    ("mpnet", "markers", 0),
    ("mpnet", "paper", 1),
]


def train(encoder: TransformerEncoder, n_steps: int = 3) -> list[float]:
    """Train a few steps with dropout; return the losses."""
    losses = []
    weights = encoder.trained_parameters() or [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(weights, lr=1e-2)
    encoder.train()
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for step in range(n_steps):
            batch = [SENTENCES[(step + i) % len(SENTENCES)] for i in range(3)]
            vectors = torch.cat([encoder.encode(batch), encoder.encode_texts(TEXTS[:2])])
            loss = (vectors @ vectors.T).softmax(-1).diagonal().mean() + 0 * weights[0].sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("kind", "mode", "n_trained"), CASES)
def test_the_cache_changes_neither_training_nor_vectors(
    folders: dict[str, ModelFolder], tmp_path: Path, kind: str, mode: str, n_trained: int
) -> None:
    results: list[tuple[list[float], Tensor]] = []
    for cache in (None, FrozenCache(), FrozenCache(tmp_path), FrozenCache(tmp_path), FrozenCache(max_bytes=1500)):
        encoder = encoder_of(folders[kind], mode=mode, trained_layers=n_trained, cache=cache)
        results.append(
            (train(encoder), torch.cat([embed(encoder, SENTENCES), embed(encoder, SENTENCES, batch_size=2)]))
        )
    for losses, vectors in results[1:]:
        assert losses == pytest.approx(results[0][0], abs=1e-5)
        assert torch.allclose(vectors, results[0][1], atol=1e-4)


def count_frozen_sentences(encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    run = encoder._frozen_states

    def counting(batch: list) -> Tensor:
        counted.append(len(batch))
        return run(batch)

    monkeypatch.setattr(encoder, "_frozen_states", counting)
    return counted


def test_frozen_layers_run_once_per_sentence(
    bert: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FrozenCache(tmp_path)
    one = encoder_of(bert, mode="paper", seed=1, cache=cache)
    counted = count_frozen_sentences(one, monkeypatch)
    embed(one, SENTENCES[:4], batch_size=3)
    embed(one, SENTENCES[1:5])
    assert sum(counted) == 5
    for other_cache in (cache, FrozenCache(tmp_path)):  # another seed, and a reopened file
        two = encoder_of(bert, mode="paper", seed=2, cache=other_cache)
        counted = count_frozen_sentences(two, monkeypatch)
        embed(two, SENTENCES[:5])
        assert counted == []


def test_sentences_seen_once_in_training_are_not_cached(bert: ModelFolder) -> None:
    cache = FrozenCache()
    encoder = encoder_of(bert, mode="paper", cache=cache).train()
    store = encoder._store()
    encoder.encode(SENTENCES[:3])
    assert len(store) == 0
    encoder.encode(SENTENCES[:1])
    assert len(store) == 1


def test_weights_and_settings_select_the_store(bert: ModelFolder, tmp_path: Path) -> None:
    other_weights = build_model(tmp_path / "other", seed=1)
    cache = FrozenCache()
    encoders = [
        encoder_of(bert, mode="paper", cache=cache),
        encoder_of(other_weights, mode="paper", cache=cache),
        encoder_of(bert, mode="paper", trained_layers=2, cache=cache),
        encoder_of(bert, mode="paper", trained_layers=0, cache=cache),
        encoder_of(bert, mode="markers", trained_layers=0, cache=cache),
        encoder_of(bert, mode="paper", precision="bf16", cache=cache),
    ]
    stores = {id(encoder._store()) for encoder in encoders}
    assert len(stores) == len(encoders)
    assert encoders[0]._store() is encoder_of(bert, mode="paper", seed=9, dropout=0.3, cache=cache)._store()


def test_changed_frozen_weights_are_detected_and_copies_share_the_cache(bert: ModelFolder) -> None:
    encoder = encoder_of(bert, mode="paper", cache=FrozenCache()).eval()
    before, copied = embed(encoder, SENTENCES), copy.deepcopy(encoder)
    assert copied._store() is encoder._store()
    with torch.no_grad():
        encoder.layers.layers[0].output.dense.weight.mul_(1.5)
    after = embed(encoder, SENTENCES)
    encoder.cache = None
    assert torch.allclose(embed(encoder, SENTENCES), after, atol=1e-5)
    assert not torch.allclose(before, after, atol=1e-3)
    assert torch.equal(embed(copied, SENTENCES), before)


def test_frozen_layers_run_without_padding_on_enough_rows(bert: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(bert, mode="paper")
    seen: list[tuple[int, int]] = []
    run = encoder.layers.run

    def watched(states: Tensor, lengths: Tensor, start: int, stop: int, places: Tensor | None = None) -> Tensor:
        if start == 0:
            assert (lengths == states.shape[1]).all()
            seen.append((states.shape[0], states.shape[1]))
        return run(states, lengths, start, stop, places)

    monkeypatch.setattr(encoder.layers, "run", watched)
    encoder.encode_texts(["river"])
    encoder.encode(SENTENCES)
    assert seen[0] == (-(-MIN_ROWS // 3), 3)  # [CLS] river [SEP], repeated
    assert all(n * length >= MIN_ROWS for n, length in seen)
    assert {length for _, length in seen[1:]} == {len(pieces) for pieces in encoder.tokenizer.encode(SENTENCES)}
