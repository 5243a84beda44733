"""A tiny model and packed sentences."""

import pytest
from tiny_models import build_model
from toy_pairs import toy_rows, toy_sentences

from erda.corpus import staging
from erda.corpus.training_pairs import PairRows
from erda.encoders.weights import ModelFolder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """A tiny model of two layers."""
    return build_model(tmp_path_factory.mktemp("bert"), n_layers=2)


@pytest.fixture(scope="session")
def rows(folder: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> PairRows:
    """Packed sentences of forty entity pairs."""
    return toy_rows(folder, tmp_path_factory.mktemp("rows") / "rows.jsonl", toy_sentences(40))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks and parts even for toy data."""
    monkeypatch.setattr(staging, "CHUNK_ROWS", 100)
    monkeypatch.setattr("erda.corpus.sources.JsonlSource.batch_size", 50)
    monkeypatch.setattr(staging, "PART_ROWS", 150)
