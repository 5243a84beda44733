"""The losses of similarity training, and their gradients."""

import math

import numpy as np
import pytest
import torch
from tiny_models import build_model
from toy_pairs import SMALL, batches_of, toy_rows, toy_sentences

from erda.corpus.similarity import SimilarityModel
from erda.corpus.similarity_training import Learner, infonce_loss
from erda.corpus.training_pairs import Machine
from erda.fields import changed_settings

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


def test_gradients_equal_finite_differences(folder, rows):
    settings = changed_settings(SMALL, {"temperature": 1.0})
    batch = batches_of(rows)[0]
    learner = Learner(folder, rows, settings, Machine(), CPU)
    with torch.no_grad():
        for one in learner.trained.values():
            one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(0)), alpha=0.05)
    learner.backward(batch)
    slope = sum(float(one.grad.pow(2).sum()) for one in learner.trained.values())
    losses = []
    for way in (-1e-2, 1e-2):
        moved = Learner(folder, rows, settings, Machine(), CPU)
        with torch.no_grad():
            for name, one in moved.trained.items():
                one.copy_(learner.trained[name] + way * learner.trained[name].grad)
        losses.append(moved.backward(batch).item())
    assert (losses[1] - losses[0]) / 2e-2 == pytest.approx(slope, rel=0.02)
