"""Training of similarity models."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_pairs import SMALL, toy_rows, toy_sentences

from erda.corpus.similarity import SimilarityModel
from erda.corpus.similarity_run import neighbour_agreement, pair_auc
from erda.corpus.similarity_training import CHECKPOINTS, train
from erda.corpus.training_pairs import mine_pairs
from erda.errors import DataError
from erda.fields import changed_settings


@pytest.mark.parametrize("rank", [4, 0])
def test_training_improves_auc_and_agreement(folder, tmp_path, rank):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(80))
    rate = 3e-2 if rank else 1e-2
    changes = {"rank": rank, "batch_size": 16, "n_epochs": 8, "learning_rate": rate, "blank_names": 1.0}
    settings = changed_settings(SMALL, changes)
    trained = train(folder, rows, settings, out=tmp_path / "model")
    assert trained.n_steps == 40
    assert trained.losses[-1][1] < trained.losses[0][1] - 0.3
    assert not (tmp_path / "model" / CHECKPOINTS).exists()
    new = toy_sentences(80, seed=9)
    held_out = toy_rows(folder, tmp_path / "new.jsonl", new)
    pairs = mine_pairs(held_out, np.arange(len(held_out)), seed=0)
    models = [SimilarityModel(folder, weights) for weights in (None, trained.weights)]
    before, after = (pair_auc(model, held_out, pairs, blank_names=True) for model in models)
    assert after > before + 0.05
    before, after = (
        neighbour_agreement(model.encode(new, blank_names=True), [one.relation for one in new]) for model in models
    )
    assert after > before


def test_packed_sentences_have_the_vectors_of_examples(folder, rows):
    model = SimilarityModel(folder)
    picked = np.array([7, 3, 110, 3])
    for blank in (False, True):
        expected = model.encode([toy_sentences(40)[i] for i in picked], blank_names=blank)
        found = model.encode_packed(rows.sentences, picked, blank_names=blank).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_the_seed_determines_the_weights_and_global_random_states_stay(folder, rows, tmp_path):
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    one, again, other = (
        train(folder, rows, changed_settings(SMALL, {"seed": seed}), out=tmp_path / "x") for seed in (0, 0, 1)
    )
    assert one.weights.digest == again.weights.digest != other.weights.digest
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])


def test_divergence_raises(folder, rows, tmp_path):
    with pytest.raises(DataError, match="diverged"):
        train(folder, rows, changed_settings(SMALL, {"weight_decay": 1e30, "learning_rate": 1.0}), out=tmp_path)
    assert (tmp_path / CHECKPOINTS).exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("checkpoints/mine.pt", "weights of my own"),
        ("checkpoints/run.json", '{"lr": 0.1}'),
        ("checkpoints/run.json", "not JSON"),
        ("training.json", "{}"),
        ("adapter.safetensors", "weights of my own"),
        ("similarity.json", "{}"),
    ],
)
def test_files_of_the_user_are_rejected_and_never_touched(folder, rows, tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(DataError):
        train(folder, rows, SMALL, out=tmp_path)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]
    assert path.read_text() == content


def test_missing_pairs_or_negatives_raise(folder, rows, tmp_path):
    with pytest.raises(DataError):
        train(folder, rows, SMALL, out=tmp_path, limit=1)
    alone = replace(rows, tail=rows.head + 1000)
    with pytest.raises(DataError):
        train(folder, alone, changed_settings(SMALL, {"objective": "paper"}), out=tmp_path)
