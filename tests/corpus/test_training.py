import argparse
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import build_model
from toy_corpus import erda_corpus
from toy_pairs import toy_rows, toy_sentences, write_tagged

from erda.cli import corpus_train
from erda.corpus.batches import PairBatches
from erda.corpus.checkpoints import CHECKPOINTS
from erda.corpus.learner import Learner, infonce_loss, paper_loss, teacher_loss
from erda.corpus.pairs import mine_pairs
from erda.corpus.recipe import Machine, TrainingSettings
from erda.corpus.similarity import SimilarityModel, load_similarity
from erda.corpus.similarity_run import neighbour_agreement, pair_auc
from erda.corpus.training import train
from erda.encoders.packed import AS_IT_IS, MASKED, SOMETHING, WHOLE
from erda.errors import DataError, ModelError, SettingsError, WriteError
from erda.fields import changed_settings, checked_settings

SMALL = TrainingSettings(rank=4, batch_size=8, learning_rate=1e-2)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("bert"), n_layers=2)


@pytest.fixture(scope="module")
def rows(folder, tmp_path_factory):
    return toy_rows(folder, tmp_path_factory.mktemp("rows") / "rows.jsonl", toy_sentences(40))


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


def test_a_teacher_is_followed():
    teacher = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert teacher_loss(teacher, teacher).item() == pytest.approx(0, abs=1e-6)
    p = [1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))]
    uniform = sum(one * math.log(one / 0.5) for one in p)
    found = teacher_loss(torch.zeros(1, 2), teacher[:1]).item()
    assert found == pytest.approx(uniform, abs=1e-6)


@pytest.mark.parametrize("objective", ["infonce", "paper"])
def test_the_loss_of_a_batch_against_single_sentences(folder, rows, objective):
    settings = changed_settings(
        SMALL, {"objective": objective, "blank_names": 0.0, "temperature": 0.5, "batch_size": 6}
    )
    batch = batches_of(rows, **settings.model_dump())[0]
    loss = Learner(folder, rows, settings, Machine(), CPU).backward(batch).item()
    vectors = SimilarityModel(folder).encode(toy_sentences(40))
    used = batch.shown.rows
    n = 6
    first, second, negative = vectors[used[:n]], vectors[used[n : 2 * n]], vectors[used[2 * n :]]
    assert batch.anchor.tolist() == list(range(6))
    if objective == "paper":
        scores = [(first * second).sum(1), -(first * negative).sum(1)]
        expected = sum(np.log1p(np.exp(-s / 0.5)).mean() for s in scores)
    else:
        pair, other = rows.pair[used[:n]], rows.pair[used[2 * n :]]
        losses = []
        for one, two in ((first, second), (second, first)):
            for i in range(n):
                wrong = [two[j] for j in range(n) if pair[j] != pair[i]]
                wrong += [negative[j] for j in range(n) if other[j] != pair[i]]
                right = math.exp(one[i] @ two[i] / 0.5)
                losses.append(-math.log(right / (right + sum(math.exp(one[i] @ w / 0.5) for w in wrong))))
        expected = np.mean(losses)
    assert loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["bert", "mpnet", "electra"])
@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_cached_gradients_are_the_plain_ones(tmp_path, kind, rank, dropout):
    folder = build_model(tmp_path / "model", kind, n_layers=2)
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(12))
    settings = changed_settings(SMALL, {"rank": rank, "dropout": dropout})
    batch = batches_of(rows, hard_negatives=0.0)[0]
    found = []
    for size in (0, 2):  # 16 sentences in 8 chunks either way, so that dropout drops the same
        learner = Learner(folder, rows, settings, Machine(chunk_size=size), CPU)
        with torch.no_grad():
            for number, (name, one) in enumerate(learner.trained.items()):
                if name.endswith(".up"):
                    one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(number)), alpha=0.3)
        loss = learner.backward(batch)
        found.append((loss, {name: one.grad for name, one in learner.trained.items()}))
    (loss, plain), (again, cached) = found
    assert again.item() == pytest.approx(loss.item(), rel=1e-5)
    for name, gradient in plain.items():
        assert (gradient is None) == (cached[name] is None), name
        if gradient is not None:
            assert torch.allclose(cached[name], gradient, atol=1e-6, rtol=1e-4), name


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_bfloat16_is_float32_but_for_rounding(tmp_path, kind):
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


def test_gradients_are_those_of_the_model_as_it_is_loaded(folder, rows):
    """The gradient of the loss along a direction, against a difference."""
    settings = changed_settings(SMALL, {"hard_negatives": 0.5, "temperature": 1.0})
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


# -- draws -----------------------------------------------------------------------------------------------------------


def batches_of(rows, *, limit=None, share=0, n_shares=1, **changes):
    settings = changed_settings(SMALL, changes)
    return PairBatches(rows, np.arange(len(rows)), settings, limit=limit, share=share, n_shares=n_shares)


def links(batch):
    n = (len(batch.shown.rows) - len(batch.anchor)) // 2
    return {tuple(sorted(pair)) for pair in batch.shown.rows[: 2 * n].reshape(2, n).T.tolist()}


def test_each_pass_shows_pairs_drawn_anew(rows):
    batches = batches_of(rows, n_epochs=3)
    assert (batches.n_pairs, batches.n_batches, batches.n_steps) == (40, 5, 15)
    passes = [set().union(*(links(batches[5 * epoch + i]) for i in range(5))) for epoch in range(3)]
    assert [len(one) for one in passes] == [40] * 3
    assert len(passes[0] | passes[1] | passes[2]) > 1.5 * 40
    for step in range(15):
        shown, n = batches[step].shown.rows, 8
        pair = rows.pair[shown]
        assert np.array_equal(pair[:n], pair[n : 2 * n])
        assert (pair[2 * n :] != pair[batches[step].anchor]).all()
    again = batches_of(rows, n_epochs=3)
    for step in (8, 1, 14, 0):
        for name in ("rows", "names", "around"):
            assert np.array_equal(getattr(again[step].shown, name), getattr(batches[step].shown, name))


def test_a_limit_bounds_a_pass_and_devices_share_it(rows):
    assert batches_of(rows, limit=17).n_pairs == 17
    assert batches_of(rows, limit=17).n_batches == 2
    assert batches_of(rows, limit=5).n_batches == 1
    both = [batches_of(rows, batch_size=4, share=share, n_shares=2) for share in (0, 1)]
    alone = batches_of(rows, batch_size=8)
    for step in range(5):
        assert not links(both[0][step]) & links(both[1][step])
        assert links(both[0][step]) | links(both[1][step]) == links(alone[step])


def test_names_are_hidden_and_sentences_cropped_as_often_as_asked(folder, tmp_path):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(400))
    for share in (0.0, 0.7, 1.0):
        shown = batches_of(rows, blank_names=share, batch_size=400)[0].shown
        assert (shown.names == MASKED).mean() == pytest.approx(share, abs=0.04)
        assert (shown.around == WHOLE).all()
    shown = batches_of(rows, crop=0.4, blank_names=0.0, batch_size=400)[0].shown
    cropped = shown.around[:, 0] != WHOLE
    assert cropped.mean() == pytest.approx(0.4, abs=0.05)
    assert (shown.names[~cropped] == AS_IT_IS).all()
    assert (shown.names[cropped, 0] == shown.names[cropped, 1]).all()
    assert {*shown.names[cropped].ravel()} == {MASKED, SOMETHING}
    assert {*shown.around[cropped].ravel()} == {0, 1, 2, 3}


def test_hard_negatives_come_as_often_as_asked(rows):
    for share, low, high in ((0.0, 0.0, 0.0), (0.5, 0.3, 0.7), (1.0, 1.0, 1.0)):
        found = len(batches_of(rows, hard_negatives=share, batch_size=40)[0].anchor) / 40
        assert low <= found <= high


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [4, 0])
def test_training_finds_how_entities_relate(folder, tmp_path, rank):
    rows = toy_rows(folder, tmp_path / "rows.jsonl", toy_sentences(80))
    rate = 3e-2 if rank else 1e-2
    settings = changed_settings(
        SMALL,
        {
            "rank": rank,
            "batch_size": 16,
            "n_epochs": 8,
            "learning_rate": rate,
            "blank_names": 1.0,
            "hard_negatives": 0.0,
        },
    )
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


def test_packed_sentences_have_the_vectors_of_sentences(folder, rows):
    model = SimilarityModel(folder)
    picked = np.array([7, 3, 110, 3])
    for blank in (False, True):
        expected = model.encode([toy_sentences(40)[i] for i in picked], blank_names=blank)
        found = model.encode_packed(rows.sentences, picked, blank_names=blank).numpy()
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_the_seed_decides_everything_and_nothing_else_is_touched(folder, rows, tmp_path):
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    one, again, other = (
        train(folder, rows, changed_settings(SMALL, {"seed": seed, "dropout": 0.1}), out=tmp_path / "x")
        for seed in (0, 0, 1)
    )
    assert one.weights.digest == again.weights.digest != other.weights.digest
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.2, "average": 0.9, "rank": 0}])
def test_an_interrupted_training_goes_on(folder, rows, tmp_path, changes):
    settings = changed_settings(SMALL, {"n_epochs": 2, **changes})
    whole = train(folder, rows, settings, out=tmp_path / "whole")
    interrupt(folder, rows, settings, out=tmp_path / "part", save_steps=5)
    with pytest.raises(SettingsError, match="unfinished training with other settings"):
        train(folder, rows, changed_settings(settings, {"seed": 3}), out=tmp_path / "part")
    seen: list[int] = []
    machine = Machine(save_steps=5)
    resumed = train(folder, rows, settings, out=tmp_path / "part", machine=machine, after_step=seen.append)
    assert seen == [6, 7, 8, 9, 10]
    assert resumed.weights.digest == whole.weights.digest


def interrupt(folder, rows, settings, *, out, save_steps):
    def stop(step):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, rows, settings, out=out, machine=Machine(save_steps=save_steps), after_step=stop)


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_damaged_checkpoint_is_passed_over(folder, rows, tmp_path, capsys, ending):
    settings = changed_settings(SMALL, {"n_epochs": 2})
    whole = train(folder, rows, settings, out=tmp_path / "whole")
    interrupt(folder, rows, settings, out=tmp_path / "part", save_steps=2)
    assert sorted(path.name for path in (tmp_path / "part" / CHECKPOINTS).glob("*.safetensors")) == [
        "checkpoint-4.safetensors",
        "checkpoint-6.safetensors",
    ]
    path = tmp_path / "part" / CHECKPOINTS / f"checkpoint-6.{ending}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content if ending == "safetensors" else content[:-9])
    capsys.readouterr()
    seen: list[int] = []
    resumed = train(folder, rows, settings, out=tmp_path / "part", after_step=seen.append)
    assert "checkpoint-6: is damaged or not whole" in capsys.readouterr().err
    assert seen[0] == 5  # it goes on from the checkpoint before
    assert resumed.weights.digest == whole.weights.digest


def test_a_full_disk_is_said_when_a_checkpoint_does_not_fit(folder, rows, tmp_path, monkeypatch):
    whole = Path.write_bytes

    def no_room(self, content):
        if "safetensors" in self.name:
            raise OSError(ENOSPC, "No space left on device")
        return whole(self, content)

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(
        WriteError, match=r"checkpoint-2\.safetensors: the disk is full\. What was there before is intact"
    ):
        train(folder, rows, SMALL, out=tmp_path, machine=Machine(save_steps=2))


def test_the_mean_of_the_weights_is_saved(folder, rows, tmp_path):
    last, mean, still = (
        train(folder, rows, changed_settings(SMALL, {"average": average}), out=tmp_path / f"{average}").weights.tensors
        for average in (0.0, 0.5, 0.999999)
    )
    name = next(name for name in last if name.endswith(".up"))
    lengths = [float(one[name].float().norm()) for one in (last, mean, still)]
    assert lengths[0] > lengths[1] > 0
    assert lengths[0] != lengths[2]


def test_training_begins_from_weights_that_are_there(folder, rows, tmp_path):
    first = train(folder, rows, SMALL, out=tmp_path / "first")
    start = {"start": str(tmp_path / "first")}
    still = changed_settings(SMALL, {**start, "learning_rate": 1e-12, "weight_decay": 0.0})
    again = train(folder, rows, still, out=tmp_path / "again")
    for name, one in first.weights.tensors.items():
        assert torch.allclose(one.float(), again.weights.tensors[name].float(), atol=1e-6)
    with pytest.raises(ModelError, match="has rank 4 and scale 1, the training rank 2"):
        train(folder, rows, changed_settings(SMALL, {**start, "rank": 2}), out=tmp_path / "other")
    for name in ("start", "teacher"):
        with pytest.raises(ModelError, match="No adapter at"):
            train(folder, rows, changed_settings(SMALL, {name: "nowhere"}), out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_student_comes_closer_to_its_teacher(folder, rows, tmp_path):
    learned = changed_settings(SMALL, {"n_epochs": 4, "learning_rate": 3e-2, "hard_negatives": 0.0})
    train(folder, rows, learned, out=tmp_path / "teacher")
    taught = {"teacher": str(tmp_path / "teacher"), "teacher_weight": 10.0, "seed": 1, "blank_names": 0.0}
    alone, student = (
        train(folder, rows, changed_settings(learned, changes), out=tmp_path / name).weights
        for name, changes in (("alone", {"seed": 1, "blank_names": 0.0}), ("student", taught))
    )
    vectors = [
        SimilarityModel(folder, weights).encode_packed(rows.sentences, np.arange(60)).numpy()
        for weights in (load_similarity(tmp_path / "teacher").weights, alone, student)
    ]
    teacher, *others = (one @ one.T for one in vectors)
    apart = [float(np.abs(one - teacher).mean()) for one in others]
    assert apart[1] < 0.8 * apart[0]


def test_training_that_diverges_is_said(folder, rows, tmp_path):
    with pytest.raises(DataError, match=r"training diverged .* lower --learning-rate"):
        train(folder, rows, changed_settings(SMALL, {"weight_decay": 1e30, "learning_rate": 1.0}), out=tmp_path)
    assert (tmp_path / CHECKPOINTS).exists()


PROCESS = """
import os, sys
from pathlib import Path
import numpy as np
from erda.corpus.pairs import PairRows
from erda.corpus.recipe import TrainingSettings
from erda.corpus.training import train
from erda.encoders.weights import find_model
model, rows, out = map(Path, sys.argv[1:])
settings = TrainingSettings(rank=4, batch_size=4, learning_rate=1e-2, hard_negatives=0.0)
print(train(find_model(model), PairRows.load(rows), settings, out=out).weights.digest)
"""


@pytest.mark.slow
def test_two_processes_train_one_model(folder, rows, tmp_path):
    rows.save(tmp_path / "rows.npz")
    command = [sys.executable, "-c", PROCESS, str(folder.path), str(tmp_path / "rows.npz"), str(tmp_path / "model")]
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29571",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    ended = [one.communicate(timeout=120) for one in started]
    assert [one.returncode for one in started] == [0, 0], ended[0][1][-2000:]
    digests = {out.decode().strip() for out, _ in ended}
    assert digests == {load_similarity(tmp_path / "model").weights.digest}
    assert b"step 5 of 5" in ended[0][1]
    assert b"step 5 of 5" not in ended[1][1]


def test_an_unfinished_training_can_be_given_up(folder, rows, tmp_path):
    other = {"made_by": "erda corpus train", "version": 3, "settings": SMALL.model_dump(), "pairs": "other"}
    (tmp_path / CHECKPOINTS).mkdir()
    (tmp_path / CHECKPOINTS / "run.json").write_text(json.dumps(other))
    with pytest.raises(SettingsError, match="--no-resume"):
        train(folder, rows, SMALL, out=tmp_path)
    assert train(folder, rows, SMALL, out=tmp_path, resume=False).n_steps == 5
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
def test_files_of_somebody_elses_are_refused_and_left_alone(folder, rows, tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    for resume in (True, False):
        with pytest.raises(DataError, match="Name another folder for --out"):
            train(folder, rows, SMALL, out=tmp_path, resume=resume)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]
    assert path.read_text() == content


def test_what_cannot_be_trained_is_said(folder, rows, tmp_path):
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
    with pytest.raises(SettingsError, match="'paper' has no teacher"):
        checked_settings(TrainingSettings, {"objective": "paper", "teacher": "x"})
    with pytest.raises(DataError, match="1 pairs of sentences: nothing to train on"):
        train(folder, rows, SMALL, out=tmp_path, limit=1)
    alone = replace(rows, tail=rows.head + 1000)
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
    write_tagged(tmp_path / "tagged.jsonl", toy_sentences(100))
    packed = tmp_path / "pairs.npz"
    out = run_command("pairs", tmp_path / "tagged.jsonl", "--encoder", folder.path, "--out", packed)
    assert "300 sentences, 100 pairs" in out
    rows = [
        {"tokens": one.tokens, "head": {"span": [3, 4]}, "tail": {"span": list(span(one))}, "relation": one.relation}
        for one in toy_sentences(12, seed=5)
    ]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ["--validation", str(tmp_path / "labelled.jsonl"), "--held-out", "0.3"]
    options = [*common, "--encoder", str(folder.path), "--rank", "4", "--batch-size", "16", "--limit", "64"]
    out = run_command("train", "--pairs", packed, "--out", tmp_path / "model", *options)
    assert "trained on 64 pairs, 4 steps" in out
    assert "nearest neighbour has the same relation" in out
    report = json.loads((tmp_path / "model" / "training.json").read_text())
    assert report["command"].startswith("erda train --pairs")
    assert [*report["data"]["sources"]] == ["tagged.jsonl"]
    assert report["data"]["n_rows"] == 300
    assert len(report["data"]["digest"]) == 64
    assert report["seconds"] > 0
    assert report["settings"]["temperature"] == 0.07
    assert report["settings"]["learning_rate"] == 2e-3
    assert report["before"]["n_pairs"] == report["after"]["n_pairs"] > 0
    assert report["after"]["n_validation"] > 0
    parser = argparse.ArgumentParser()
    corpus_train.add_commands(parser.add_subparsers())
    asked = ["evaluate", str(tmp_path / "model"), "--pairs", str(packed), *common]
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
        ("--chunk-size", "-1", "chunk_size: must be at least 0, got -1"),
        ("--max-pieces", "0", "max_pieces: must be at least 1, got 0"),
        ("--scale", "nan", "scale: expected a finite number, got nan"),
        ("--seed", "-1", "seed: must be at least 0, got -1"),
    ],
)
def test_flags_that_cannot_work_are_refused_before_anything_is_read(tmp_path, flag, value, message):
    with pytest.raises(SettingsError, match=message):
        erda_corpus("train", "--pairs", tmp_path / "none.jsonl", "--out", tmp_path / "model", flag, value)
    assert not (tmp_path / "model").exists()
