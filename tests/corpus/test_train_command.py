"""The commands `erda corpus train`, `pairs` and `evaluate`."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy_corpus import erda_corpus
from toy_pairs import toy_sentences, write_tagged

from erda.cli import corpus_train
from erda.corpus.similarity import load_similarity
from erda.errors import SettingsError

# a training machine has PyTorch, transformers, NumPy, safetensors, pydantic, tqdm, filelock and platformdirs
ABSENT = ["duckdb", "faiss", "pyarrow", "matplotlib", "sklearn", "pooch", "datasets", "peft", "numba", "scipy"]
ABSENT += ["jinja2", "ray", "optuna", "rich"]
COMMAND = f"""
import argparse, sys
for name in {ABSENT!r}:
    sys.modules[name] = None
from erda.cli import corpus_train
parser = argparse.ArgumentParser()
corpus_train.add_commands(parser.add_subparsers())
options = parser.parse_args()
options.handler(options)
"""


def test_training_imports_no_corpus_libraries():
    modules = "erda.corpus.similarity_training, erda.corpus.similarity_run, erda.cli.corpus_train"
    code = f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\nimport {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
def test_training_from_a_packed_file_without_corpus_libraries(folder, tmp_path, capsys):
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
    options.handler(options)
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


def test_a_missing_device_is_rejected_before_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command in (["train", "--pairs", tmp_path / "none.jsonl", "--out", tmp_path / "model"], ["evaluate"]):
        with pytest.raises(SettingsError, match="CUDA"):
            erda_corpus(*command, "--device", "cuda")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--held-out", "1"),
        ("--limit", "0"),
        ("--save-steps", "0"),
        ("--max-pieces", "0"),
        ("--scale", "nan"),
        ("--seed", "-1"),
    ],
)
def test_invalid_flags_are_rejected_before_reading(tmp_path, flag, value):
    with pytest.raises(SettingsError) as fault:
        erda_corpus("train", "--pairs", tmp_path / "none.jsonl", "--out", tmp_path / "model", flag, value)
    assert flag.strip("-").replace("-", "_") in str(fault.value).replace("-", "_")
    assert not (tmp_path / "model").exists()
