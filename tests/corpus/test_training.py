import argparse
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from tiny_models import build_model
from toy_corpus import erda_corpus
from toy_pairs import toy_sentences

from erda.cli import corpus_train
from erda.corpus import training
from erda.corpus.pairs import NONE, mine_pairs, write_pairs
from erda.corpus.similarity import SimilarityModel, load_similarity
from erda.corpus.similarity_run import neighbour_agreement, pair_auc
from erda.corpus.training import (
    CHECKPOINTS,
    Machine,
    PairBatches,
    PairModel,
    TrainingSettings,
    infonce_loss,
    paper_loss,
    train,
)
from erda.encoders.settings import TransformerSettings
from erda.encoders.transformer import TransformerEncoder
from erda.errors import DataError, SettingsError, WriteError
from erda.fields import changed_settings, checked_settings

SMALL = TrainingSettings(rank=4, batch_size=16, learning_rate=1e-2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("bert"), n_layers=2)


@pytest.fixture(scope="module")
def pairs():
    return mine_pairs(toy_sentences(40), seed=0)


# -- objectives ------------------------------------------------------------------------------------------------------


def test_infonce_by_hand():
    similarities = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    same = torch.eye(2, dtype=torch.bool)
    first = -math.log(math.e / (math.e + 1))  # row 0: 1 against 0
    second = math.log(2)  # row 1: a tie
    assert infonce_loss(similarities, same, 1.0).item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_infonce_against_a_loop():
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


def test_paper_loss_by_hand():
    def sigma(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    positive, negative = [0.8, -0.2], [0.1]
    expected = -np.mean([math.log(sigma(s)) for s in positive]) - math.log(1 - sigma(0.1))
    assert paper_loss(torch.tensor(positive), torch.tensor(negative)).item() == pytest.approx(expected, abs=1e-6)
    alone = paper_loss(torch.tensor([0.8]), torch.tensor([]))
    assert alone.item() == pytest.approx(-math.log(sigma(0.8)), abs=1e-6)
    closer = paper_loss(torch.tensor([0.9]), torch.tensor(negative), 0.1)
    assert closer < paper_loss(torch.tensor([0.8]), torch.tensor(negative), 0.1)


def shown_rows(batches, number):
    return tuple(row for row, _ in batches.draw(number))


@pytest.mark.parametrize("objective", ["infonce", "paper"])
def test_the_loss_of_a_batch_against_single_sentences(folder, pairs, objective):
    settings = changed_settings(SMALL, {"objective": objective, "blank_names": 0.0})
    encoder = TransformerEncoder(folder, TransformerSettings(mode="markers"))
    batches = PairBatches(pairs, settings, encoder.tokenizer)
    batch = [shown_rows(batches, i) for i in range(6)]
    model = PairModel(encoder, objective=objective, temperature=0.5)
    with torch.no_grad():
        loss = model(**batches(range(6)))["loss"].item()
    vectors = SimilarityModel(folder).encode(pairs.examples)
    first, second, negative = (vectors[[rows[role] for rows in batch]] for role in range(3))
    if objective == "paper":
        scores = [(first * second).sum(1), -(first * negative).sum(1)]
        expected = sum(np.log1p(np.exp(-s / 0.5)).mean() for s in scores)
    else:
        pair = pairs.pair[[rows[0] for rows in batch]]
        other = pairs.pair[[rows[2] for rows in batch]]
        losses = []
        for one, two in ((first, second), (second, first)):
            for i in range(6):
                wrong = [two[j] for j in range(6) if pair[j] != pair[i]]
                wrong += [negative[j] for j in range(6) if other[j] != pair[i]]
                right = math.exp(one[i] @ two[i] / 0.5)
                losses.append(-math.log(right / (right + sum(math.exp(one[i] @ w / 0.5) for w in wrong))))
        expected = np.mean(losses)
    assert loss == pytest.approx(expected, rel=1e-4)


# -- draws -----------------------------------------------------------------------------------------------------------


def batches_of(pairs, **changes):
    return PairBatches(pairs, changed_settings(SMALL, changes), tokenizer=None)  # which drawing does not need


def test_each_pass_shows_pairs_drawn_anew(pairs):
    draws, n = batches_of(pairs, n_epochs=3), len(pairs)
    passes = [[shown_rows(draws, epoch * n + i) for i in range(n)] for epoch in range(3)]
    shown = [{rows[:2] for rows in one} for one in passes]
    assert shown[0] == set(zip(pairs.first, pairs.second, strict=True))
    assert len(shown[0] | shown[1] | shown[2]) > 1.5 * n
    for first, second, negative in passes[2]:
        assert pairs.pair[first] == pairs.pair[second] != pairs.pair[negative]
    again = batches_of(pairs, n_epochs=3)
    assert [again.draw(i) for i in (n + 3, 1, 2 * n, 0)] == [draws.draw(i) for i in (n + 3, 1, 2 * n, 0)]


def test_names_are_blanked_as_often_as_asked():
    pairs = mine_pairs(toy_sentences(300), seed=0)
    for share in (0.0, 0.7, 1.0):
        draws = batches_of(pairs, blank_names=share)
        blanked = np.array([[names for _, names in draws.draw(i)] for i in range(len(pairs))], dtype=float)
        assert blanked.mean() == pytest.approx(share, abs=0.03)


def test_hard_negatives_come_as_often_as_asked(pairs):
    for share, low, high in ((0.0, 0.0, 0.0), (0.5, 0.3, 0.7), (1.0, 1.0, 1.0)):
        draws = batches_of(pairs, hard_negatives=share)
        found = [len(draws.draw(i)) == 3 for i in range(len(pairs))]
        assert low <= np.mean(found) <= high


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [4, 0])
def test_training_finds_how_entities_relate(folder, tmp_path, rank):
    pairs = mine_pairs(toy_sentences(80), seed=0)
    rate = 3e-2 if rank else 1e-2
    settings = changed_settings(
        SMALL, {"rank": rank, "n_epochs": 4, "learning_rate": rate, "blank_names": 1.0, "hard_negatives": 0.0}
    )
    trained = train(folder, pairs, settings, out=tmp_path)
    assert trained.n_steps == 40
    assert trained.losses[-1][1] < trained.losses[0][1] - 0.3
    assert not (tmp_path / CHECKPOINTS).exists()
    new = toy_sentences(40, seed=9)
    held_out = mine_pairs(new, seed=0)
    models = [SimilarityModel(folder, weights) for weights in (None, trained.weights)]
    before, after = (pair_auc(model, held_out, blank_names=True) for model in models)
    assert after > before + 0.1
    before, after = (
        neighbour_agreement(model.encode(new, blank_names=True), [one.relation for one in new]) for model in models
    )
    assert after > before


def test_the_seed_decides_everything_and_nothing_else_is_touched(folder, pairs, tmp_path):
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    one, again, other = (
        train(folder, pairs, changed_settings(SMALL, {"seed": seed}), out=tmp_path / "x") for seed in (0, 0, 1)
    )
    assert one.weights.digest == again.weights.digest != other.weights.digest
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])


def test_an_interrupted_training_goes_on(folder, pairs, tmp_path, monkeypatch):
    settings = changed_settings(SMALL, {"n_epochs": 2})
    whole = train(folder, pairs, settings, out=tmp_path / "whole")
    seen = []

    def stop(self, args, state, control, **rest):
        seen.append(state.global_step)
        if state.global_step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training._Lines, "on_step_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(folder, pairs, settings, out=tmp_path / "part", machine=Machine(save_steps=5))
    with pytest.raises(SettingsError, match="unfinished training with other settings"):
        train(folder, pairs, changed_settings(settings, {"seed": 3}), out=tmp_path / "part")
    seen.clear()
    with monkeypatch.context() as patch:
        patch.setattr(
            training._Lines, "on_step_end", lambda self, args, state, *rest, **more: seen.append(state.global_step)
        )
        resumed = train(folder, pairs, settings, out=tmp_path / "part", machine=Machine(save_steps=5))
    assert seen[0] == 6
    assert resumed.weights.digest == whole.weights.digest


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "files.json"])
def test_a_damaged_checkpoint_is_passed_over(folder, pairs, tmp_path, monkeypatch, capsys, name):  # noqa: PLR0917
    settings = changed_settings(SMALL, {"n_epochs": 2})
    whole = train(folder, pairs, settings, out=tmp_path / "whole")

    def stop(self, args, state, control, **rest):
        if state.global_step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training._Lines, "on_step_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(folder, pairs, settings, out=tmp_path / "part", machine=Machine(save_steps=2))
    path = tmp_path / "part" / CHECKPOINTS / "checkpoint-6" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    capsys.readouterr()
    resumed = train(folder, pairs, settings, out=tmp_path / "part", machine=Machine(save_steps=2))
    err = capsys.readouterr().err
    assert "checkpoint-6: is damaged or not whole" in err
    assert "step 4 " not in err  # it goes on from the checkpoint before
    assert resumed.weights.digest == whole.weights.digest


def test_a_full_disk_is_said_when_a_checkpoint_does_not_fit(folder, pairs, tmp_path, monkeypatch):
    def no_room(self, *given, **named):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(training.Trainer, "_save_checkpoint", no_room)
    with pytest.raises(WriteError, match=r"checkpoint-2: the disk is full\. What was there before is intact"):
        train(folder, pairs, SMALL, out=tmp_path, machine=Machine(save_steps=2))


def test_an_unfinished_training_can_be_given_up(folder, pairs, tmp_path):
    other = {"made_by": "erda corpus train", "version": 2, "settings": SMALL.model_dump(), "pairs": "other"}
    (tmp_path / CHECKPOINTS).mkdir()
    (tmp_path / CHECKPOINTS / "run.json").write_text(json.dumps(other))
    with pytest.raises(SettingsError, match="--no-resume"):
        train(folder, pairs, SMALL, out=tmp_path)
    assert train(folder, pairs, SMALL, out=tmp_path, resume=False).n_steps == 5
    assert load_similarity(tmp_path).weights.kind == "adapter"
    assert not (tmp_path / CHECKPOINTS).exists()


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
def test_files_of_somebody_elses_are_refused_and_left_alone(folder, pairs, tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    for resume in (True, False):
        with pytest.raises(DataError, match="Name another folder for --out"):
            train(folder, pairs, SMALL, out=tmp_path, resume=resume)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]
    assert path.read_text() == content


def test_what_cannot_be_trained_is_said(folder, pairs, tmp_path):
    with pytest.raises(SettingsError, match=r"objective: Unknown word 'papr'\. Did you mean 'paper'"):
        checked_settings(TrainingSettings, {"objective": "papr"})
    with pytest.raises(SettingsError) as fault:
        checked_settings(TrainingSettings, {"blank_names": 1.5, "batch_size": 1})
    assert str(fault.value).splitlines() == [
        "blank_names: must be at most 1, got 1.5.",
        "batch_size: must be at least 2, got 1.",
    ]
    with pytest.raises(SettingsError, match="'paper' needs hard negatives"):
        checked_settings(TrainingSettings, {"objective": "paper", "hard_negatives": 0.0})
    with pytest.raises(DataError, match="1 pairs of sentences: nothing to train on"):
        train(folder, pairs.take(np.array([0])), SMALL, out=tmp_path)
    alone = replace(pairs, negative=np.full(len(pairs), NONE))
    with pytest.raises(DataError, match="no two entity pairs share an entity"):
        train(folder, alone, changed_settings(SMALL, {"objective": "paper"}), out=tmp_path)


# -- the commands ----------------------------------------------------------------------------------------------------

# a machine with a GPU has PyTorch, transformers, NumPy, safetensors, pydantic, tqdm, filelock and platformdirs
ABSENT = [
    "duckdb",
    "faiss",
    "pyarrow",
    "matplotlib",
    "sklearn",
    "pooch",
    "datasets",
    "peft",
    "numba",
    "scipy",
    "jinja2",
]
ABSENT += ["ray", "optuna", "rich"]
COMMAND = f"""
import argparse, sys
for name in {ABSENT!r}:
    sys.modules[name] = None
from erda.cli import corpus_train
parser = argparse.ArgumentParser()
corpus_train.add_commands(parser.add_subparsers())
options = parser.parse_args()
raise SystemExit(options.handler(options))
"""


def test_training_imports_nothing_of_the_corpus_libraries():
    modules = "erda.corpus.training, erda.corpus.similarity_run, erda.cli.corpus_train"
    code = f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\nimport {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_training_from_a_file_where_the_corpus_libraries_are_absent(folder, tmp_path, capsys):
    write_pairs(toy_sentences(60), tmp_path / "pairs.jsonl.gz", limit=None)
    rows = [
        {"tokens": one.tokens, "head": {"span": [3, 4]}, "tail": {"span": list(span(one))}, "relation": one.relation}
        for one in toy_sentences(12, seed=5)
    ]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ["--validation", str(tmp_path / "labelled.jsonl"), "--held-out", "0.3"]
    options = [*common, "--encoder", str(folder.path), "--rank", "4", "--batch-size", "16", "--limit", "64"]
    out = run_command("train", "--pairs", tmp_path / "pairs.jsonl.gz", "--out", tmp_path / "model", *options)
    assert "trained on 64 pairs, 4 steps" in out
    assert "nearest neighbour has the same relation" in out
    report = json.loads((tmp_path / "model" / "training.json").read_text())
    assert report["command"].startswith("erda train --pairs")
    assert report["settings"]["temperature"] == 0.07
    assert report["settings"]["learning_rate"] == 2e-3
    assert report["before"]["n_pairs"] == report["after"]["n_pairs"] > 0
    assert report["after"]["n_validation"] > 0
    parser = argparse.ArgumentParser()
    corpus_train.add_commands(parser.add_subparsers())
    asked = ["evaluate", str(tmp_path / "model"), "--pairs", str(tmp_path / "pairs.jsonl.gz"), *common]
    options = parser.parse_args(asked)
    assert options.handler(options) == 0
    measured = capsys.readouterr().out
    assert f"{report['after']['agreement']:6.3f}" in measured
    assert f"{report['after']['auc']:6.3f}" in measured
    assert load_similarity(tmp_path / "model").weights.kind == "adapter"


def span(example):
    return example.tail.span.start, example.tail.span.end


def run_command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ERDA_DATA": str(Path("/nonexistent"))},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_device_that_is_not_there_is_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command in (["train", "--pairs", tmp_path / "none.jsonl", "--out", tmp_path / "model"], ["evaluate"]):
        with pytest.raises(SettingsError, match="'cuda' was asked for, but PyTorch sees no CUDA device here"):
            erda_corpus(*command, "--device", "cuda")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--held-out", "1", "--held-out is 1.0: expected 0 or more and less than 1"),
        ("--limit", "0", "--limit is 0: expected 1 or more"),
        ("--save-steps", "0", "save_steps: must be at least 1, got 0"),
        ("--workers", "-1", "n_workers: must be at least 0, got -1"),
        ("--max-pieces", "0", "max_pieces: must be at least 1, got 0"),
        ("--scale", "nan", "scale: expected a finite number, got nan"),
        ("--seed", "-1", "seed: must be at least 0, got -1"),
    ],
)
def test_flags_that_cannot_work_are_refused_before_anything_is_read(tmp_path, flag, value, message):
    with pytest.raises(SettingsError, match=message):
        erda_corpus("train", "--pairs", tmp_path / "none.jsonl", "--out", tmp_path / "model", flag, value)
    assert not (tmp_path / "model").exists()
