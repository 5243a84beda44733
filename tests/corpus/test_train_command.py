"""The commands `erda corpus train` and `pairs`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy_corpus import erda_corpus
from toy_pairs import toy_sentences, write_tagged

from erda.corpus.similarity import load_similarity
from erda.errors import SettingsError

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
    rows = [
        {"tokens": one.tokens, "head": {"span": [3, 4]}, "tail": {"span": list(span(one))}, "relation": one.relation}
        for one in toy_sentences(12, seed=5)
    ]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
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


def span(example):
    return example.tail.span.start, example.tail.span.end


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
        ("limit=0", "limit"),
        ("save_steps=0", "save_steps"),
        ("max_pieces=0", "max_pieces"),
        ("scale=nan", "scale"),
        ("seed=-1", "seed"),
        ("epochs=2", "Did you mean 'n_epochs'"),
    ],
)
def test_invalid_settings_are_rejected_before_reading(tmp_path, monkeypatch, setting, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match=said):
        erda_corpus("train", tmp_path / "none.jsonl", "--out", tmp_path / "model", "--set", setting)
    assert not (tmp_path / "model").exists()
