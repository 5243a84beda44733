"""Training of similarity models: losses, weights and checkpoints."""

import math
import random
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from tiny_models import build_model
from toy_pairs import SMALL, batches_of, toy_rows, toy_sentences

from erda.corpus.similarity import SimilarityModel
from erda.corpus.similarity_run import neighbour_agreement, pair_auc
from erda.corpus.similarity_training import CHECKPOINTS, Learner, distillation_loss, infonce_loss, labelled_loss, train
from erda.corpus.training_batches import Machine, mine_pairs
from erda.encoders.adapter import TrainedWeights
from erda.encoders.packed import Shown
from erda.errors import DataError, SettingsError
from erda.fields import changed_settings
from erda.files import locked, temporary_name

CPU = torch.device("cpu")


def test_infonce_equals_a_loop():
    generator = torch.Generator().manual_seed(0)
    similarities = torch.rand(4, 7, generator=generator) * 2 - 1
    pair = [5, 6, 5, 8, 9, 5, 6]  # column 2 and 5 are no negatives of row 0
    same = torch.tensor([[pair[i] == pair[j] for j in range(7)] for i in range(4)])
    losses = []
    for i in range(4):
        kept = [j for j in range(7) if j == i or pair[j] != pair[i]]
        total = sum(math.exp(similarities[i, j].item() / 0.07) for j in kept)
        losses.append(-similarities[i, i].item() / 0.07 + math.log(total))
    assert infonce_loss(similarities, same, 0.07).item() == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("objective", ["infonce", "paper"])
def test_the_loss_of_a_batch_equals_a_loop(folder, rows, objective):
    settings = changed_settings(
        SMALL, {"objective": objective, "blank_names": 0.0, "temperature": 0.5, "batch_size": 6}
    )
    batch = batches_of(rows, **settings.model_dump())[0]
    loss = Learner(folder, rows, settings, Machine(), CPU).backward(batch).item()
    vectors = SimilarityModel(folder).encode(toy_sentences(40))
    used = batch.shown.rows
    n = 6
    first, second, negative = vectors[used[:n]], vectors[used[n : 2 * n]], vectors[used[2 * n :]]
    assert batch.anchor.tolist() == (list(range(6)) if objective == "paper" else [])
    if objective == "paper":
        scores = [(first * second).sum(1), -(first * negative).sum(1)]
        expected = sum(np.log1p(np.exp(-s / 0.5)).mean() for s in scores)
    else:
        pair = rows.pair[used[:n]]
        losses = []
        for one, two in ((first, second), (second, first)):
            for i in range(n):
                wrong = [two[j] for j in range(n) if pair[j] != pair[i]]
                right = math.exp(one[i] @ two[i] / 0.5)
                losses.append(-math.log(right / (right + sum(math.exp(one[i] @ w / 0.5) for w in wrong))))
        expected = np.mean(losses)
    assert loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_bfloat16_equals_float32_up_to_rounding(tmp_path, kind):
    folder = build_model(tmp_path / "model", kind, n_layers=2)
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(12))
    settings = changed_settings(SMALL, {"rank": 0, "temperature": 0.5})
    batch = batches_of(rows)[0]
    losses, gradients = [], []
    for bf16 in (False, True):
        learner = Learner(folder, rows, settings, Machine(bf16=bf16), CPU)
        losses.append(learner.backward(batch).item())
        found = [one.grad for one in learner.trained.values() if one.grad is not None]
        assert {one.dtype for one in found} == {torch.float32}
        gradients.append(torch.cat([one.flatten() for one in found]))
    assert losses[1] == pytest.approx(losses[0], abs=5e-3)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99


@pytest.mark.parametrize("rank", [4, 0])
def test_training_improves_auc_and_agreement(folder, tmp_path, rank):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(80))
    rate = 3e-2 if rank else 1e-2
    changes = {"rank": rank, "batch_size": 16, "n_epochs": 5, "learning_rate": rate, "blank_names": 1.0}
    settings = changed_settings(SMALL, changes)
    trained = train(folder, rows, settings, out=tmp_path / "model")
    assert trained.n_steps == 25
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
        found = model.encode_shown(rows.sentences, Shown.whole(picked, blank_names=blank)).numpy()
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


@pytest.mark.parametrize("objective", ["infonce", "labelled"])  # one pair; no labels
def test_missing_sentences_raise(folder, rows, tmp_path, objective):
    with pytest.raises(DataError, match="too few"):
        train(folder, rows, changed_settings(SMALL, {"objective": objective}), out=tmp_path, limit=1)


@pytest.mark.parametrize("changes", [{}, {"rank": 0, "objective": "paper"}])
def test_a_resumed_training_equals_an_uninterrupted_one(folder, rows, tmp_path, changes):
    settings = changed_settings(SMALL, {"n_epochs": 2, **changes})
    whole = train(folder, rows, settings, out=tmp_path / "whole")
    interrupt(folder, rows, settings, out=tmp_path / "part", save_steps=5)
    with pytest.raises(SettingsError):
        train(folder, rows, changed_settings(settings, {"seed": 3}), out=tmp_path / "part")
    other = build_model(tmp_path / "other", n_layers=2, seed=5)
    with pytest.raises(SettingsError):
        train(other, rows, settings, out=tmp_path / "part")
    with mock.patch.object(Learner, "update", autospec=True, side_effect=Learner.update) as update:
        resumed = train(folder, rows, settings, out=tmp_path / "part")
    assert [call.args[1] for call in update.call_args_list] == [5, 6, 7, 8, 9]
    assert resumed.weights.digest == whole.weights.digest


def interrupt(folder, rows, settings, *, out, save_steps):
    def stop(self, step, n_steps):
        if step == 7:
            raise KeyboardInterrupt
        update(self, step, n_steps)

    update = Learner.update
    with mock.patch.object(Learner, "update", stop), pytest.raises(KeyboardInterrupt):
        train(folder, rows, settings, out=out, machine=Machine(save_steps=save_steps))


def test_a_damaged_checkpoint_is_rejected(folder, rows, tmp_path):
    settings = changed_settings(SMALL, {"n_epochs": 2})
    interrupt(folder, rows, settings, out=tmp_path, save_steps=2)
    path = tmp_path / CHECKPOINTS / "checkpoint.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"checkpoint\.npz"):
        train(folder, rows, settings, out=tmp_path)


def test_temporary_files_of_a_killed_training_go_and_a_running_one_keeps_others_out(
    folder, rows, tmp_path, monkeypatch
):
    out = tmp_path / "model"
    train(folder, rows, SMALL, out=out)
    left = temporary_name(out / "adapter.safetensors")
    left.write_bytes(b"half")
    train(folder, rows, SMALL, out=out)
    assert not left.exists()
    with locked(out, busy="busy"), pytest.raises(DataError, match="another process trains a model here"):
        train(folder, rows, SMALL, out=out)


def test_the_labelled_loss_equals_a_loop():
    vectors = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    relation, losses = [0, 0, 1, 1, -1, -1], []
    for i in range(4):  # pairs without a relation are negatives, and never anchors
        weights = [0.0 if j == i else math.exp(float(vectors[i] @ vectors[j]) / 0.5) for j in range(6)]
        own = [j for j in range(4) if j != i and relation[j] == relation[i]]
        losses.append(-np.mean([math.log(weights[j] / sum(weights)) for j in own]))
    assert labelled_loss(vectors, torch.tensor(relation), 0.5).item() == pytest.approx(np.mean(losses), rel=1e-4)


def test_distillation_has_no_loss_where_student_and_teacher_agree():
    cosines = torch.rand(5, 5, generator=torch.Generator().manual_seed(0))
    assert distillation_loss(cosines, cosines.clone().fill_diagonal_(9.0), 0.1).item() == pytest.approx(0, abs=1e-6)
    assert distillation_loss(cosines, cosines.flip(1), 0.1).item() > 0.1


def test_labels_and_a_teacher_train_a_model_with_levitated_marks(folder, tmp_path):
    examples = toy_sentences(40)
    unrelated = [replace(one, relation="no_relation", head=one.tail, tail=one.head) for one in examples]
    rows = toy_rows(folder, tmp_path / "rows.jsonl", [*examples, *unrelated])
    text = toy_rows(folder, tmp_path / "text.jsonl", [replace(one, relation=None) for one in examples])
    rows = rows.joined(text)
    assert len(rows.relations) == 4
    labelled = {"objective": "labelled", "n_relations": 4, "n_sentences": 3, "n_unrelated": 6, "n_steps": 10}
    teacher = train(folder, rows, changed_settings(SMALL, labelled), out=tmp_path / "teacher").weights
    assert teacher.trained_on == rows.relations
    distil = {"objective": "distil", "teachers": (str(tmp_path / "teacher"),), "mode": "levitated", "n_steps": 20}
    how = changed_settings(SMALL, distil | {"rank": 0, "batch_size": 24, "learning_rate": 1e-3})
    student = train(folder, text, how, out=tmp_path / "student")
    assert student.weights.trained_on == teacher.trained_on, "a student has seen what its teacher saw"
    assert student.losses[-1][1] < student.losses[0][1]
    model = SimilarityModel(folder, TrainedWeights.load(tmp_path / "student"))
    vectors = model.encode(examples[:8])
    assert np.abs(model.encode_shown(rows.sentences, Shown.whole(np.arange(8))).numpy() - vectors).max() < 1e-5
    assert np.abs(vectors - model.encode(unrelated[:8])).max() > 1e-3  # the direction counts
