"""The background of trained weights, made from tagged sentences."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build_model

from erda.cli.main import main
from erda.corpus.similarity_run import drawn_from
from erda.encoders import TransformerSettings, build_encoder
from erda.encoders.adapter import TrainedWeights
from erda.encoders.transformer import TransformerEncoder
from erda.encoders.weights import origin


def tagged(path: Path, n: int) -> Path:
    rows = [
        {
            "tokens": ["paris", "is", "in", "france", str(row)],
            "head": {"name": "paris", "span": [0, 1]},
            "tail": {"name": "france", "span": [3, 4]},
        }
        for row in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_sentences_are_drawn_uniformly(tmp_path: Path) -> None:
    path = tagged(tmp_path / "tagged.jsonl", 12)
    counts = Counter(one.tokens[-1] for seed in range(200) for one in drawn_from([path], 3, seed))
    assert sum(counts.values()) == 600
    assert len(counts) == 12
    assert min(counts.values()) > 25, "expected: fifty each"
    assert len(drawn_from([path], 100, 0)) == 12


def test_the_command_writes_a_background_that_the_encoder_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, model = build_model(tmp_path / "tiny"), tmp_path / "mine"
    encoder = TransformerEncoder(base, TransformerSettings(mode="markers", max_pieces=40))
    TrainedWeights.fresh(encoder.layers, base=origin(base), max_pieces=40, rank=2, scale=1.0, seed=0).save(model)
    source = tagged(tmp_path / "tagged.jsonl", 20)
    assert main(["corpus", "background", str(model), str(source)]) == 0
    assert "background.npz" in capsys.readouterr().out
    found = build_encoder(str(base.path), adapter=str(model), trained_layers=0).background()
    assert found is not None
    assert found.shape == (20, 32)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-2)


def test_an_empty_source_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "background", "minilm", str(tagged(tmp_path / "tagged.jsonl", 0))]) == 2
    assert "no sentences" in capsys.readouterr().err
