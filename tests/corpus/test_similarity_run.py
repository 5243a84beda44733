"""Measures, and the commands `erda corpus train` and `pairs`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import build_model
from toy_corpus import erda_corpus
from toy_pairs import toy_rows, toy_sentences, write_tagged

from erda.corpus.similarity import load_similarity
from erda.corpus.similarity_run import auc, measure_similarity, neighbour_agreement
from erda.corpus.training_batches import mine_pairs
from erda.encoders.packed import MASKED
from erda.errors import SettingsError

SCORES = st.lists(st.integers(-4, 4), min_size=1, max_size=20)


@given(SCORES, SCORES)
def test_auc_equals_a_loop(positive, negative):
    slow = np.mean([(p > n) + 0.5 * (p == n) for p in positive for n in negative])
    assert auc(np.array(positive), np.array(negative)) == pytest.approx(slow)


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_agreement_is_leave_one_out(block_size):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    relations = [f"r{i}" for i in rng.integers(0, 3, size=30)]
    right = 0
    for i in range(30):
        others = [j for j in range(30) if j != i]
        right += relations[max(others, key=lambda j: float(vectors[i] @ vectors[j]))] == relations[i]
    assert neighbour_agreement(vectors, relations, block_size=block_size) == pytest.approx(right / 30)


class MaskedOnly:
    """A model that knows the relation only if names are masked."""

    def __init__(self, examples):
        self.examples = examples

    def encode(self, examples, *, blank_names=False):
        ways = sorted({one.relation for one in examples})
        rng = np.random.default_rng(len(examples))
        exact = np.eye(len(ways), dtype=np.float32)[[ways.index(one.relation) for one in examples]]
        return exact if blank_names else rng.normal(size=exact.shape).astype(np.float32)

    def encode_shown(self, sentences, shown):
        blank_names = bool((shown.names == MASKED).all()) and len(shown.rows) > 0
        return torch.from_numpy(self.encode([self.examples[row] for row in shown.rows], blank_names=blank_names))


def test_auc_and_agreement_of_a_model(tmp_path):
    examples = toy_sentences(80)
    rows = toy_rows(build_model(tmp_path, n_layers=1), tmp_path / "rows.jsonl", examples)
    pairs = mine_pairs(rows, np.arange(len(rows)), seed=0)
    found = measure_similarity(MaskedOnly(examples), rows, pairs, validation=examples)
    assert found.auc == pytest.approx(0.5, abs=0.2)
    assert found.auc_blanked > 0.6
    assert found.n_pairs == 80
    assert found.n_validation == 240
    assert 0 < found.agreement < 0.6
    none = pairs.take(slice(0))
    nothing = measure_similarity(MaskedOnly([]), rows, none)
    assert (nothing.auc, nothing.agreement, nothing.n_pairs) == (None, None, 0)


# a training machine has PyTorch, transformers, NumPy, safetensors, pydantic, tqdm, filelock and platformdirs
ABSENT = ["duckdb", "faiss", "pyarrow", "matplotlib", "sklearn", "pooch", "datasets", "peft", "numba", "scipy"]
ABSENT += ["jinja2", "ray", "optuna", "rich"]
COMMAND = f"""
import sys
for name in {ABSENT!r}:
    sys.modules[name] = None
from erda.cli.main import main
sys.exit(main())
"""


def test_training_imports_no_corpus_libraries():
    modules = "erda.corpus.similarity_training, erda.corpus.similarity_run, erda.cli.corpus_commands"
    code = f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\nimport {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
def test_training_from_a_packed_file_without_corpus_libraries(folder, tmp_path):
    write_tagged(tmp_path / "tagged.jsonl", toy_sentences(100))
    packed = tmp_path / "pairs.npz"
    out = run_command("pairs", tmp_path / "tagged.jsonl", "--encoder", folder.path, "--out", packed)
    assert "300 sentences, 100 pairs" in out
    write_tagged(tmp_path / "labelled.jsonl", toy_sentences(12, seed=5))
    sets = [word for one in ("held_out=0.3", "rank=4", "batch_size=16", "limit=64") for word in ("--set", one)]
    options = ["--validation", tmp_path / "labelled.jsonl", "--encoder", folder.path, *sets]
    out = run_command("train", packed, "--out", tmp_path / "model", *options)
    assert "trained on 64 pairs, 4 steps" in out
    assert "nearest neighbour has the same relation" in out
    report = json.loads((tmp_path / "model" / "training.json").read_text())
    assert report["command"].startswith("erda corpus train")
    assert [*report["data"]["sources"]] == ["tagged.jsonl"]
    assert report["data"]["n_rows"] == 300
    assert len(report["data"]["digest"]) == 64
    assert report["seconds"] > 0
    assert report["settings"]["temperature"] == 0.07
    assert report["settings"]["learning_rate"] == 2e-3
    assert report["before"]["n_pairs"] == report["after"]["n_pairs"] > 0
    assert report["after"]["n_validation"] > 0
    assert load_similarity(tmp_path / "model").weights.kind == "adapter"


def run_command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "corpus", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ERDA_DATA": str(Path("/nonexistent"))},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("device=cuda", "CUDA"),
        ("held_out=1", "held_out"),
        ("scale=nan", "scale"),
        ("epochs=2", "Did you mean 'n_epochs'"),
    ],
)
def test_invalid_settings_are_rejected_before_reading(tmp_path, monkeypatch, setting, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match=said):
        erda_corpus("train", tmp_path / "none.jsonl", "--out", tmp_path / "model", "--set", setting)
    assert not (tmp_path / "model").exists()
