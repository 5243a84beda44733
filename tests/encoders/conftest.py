"""Tiny models, built once."""

import pytest
from tiny_models import build_model

from erda.encoders.weights import ModelFolder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFolder]:
    """One tiny model of each architecture."""
    place = tmp_path_factory.mktemp("models")
    return {kind: build_model(place / kind, kind) for kind in ("bert", "roberta", "mpnet", "electra")}


@pytest.fixture
def bert(folders: dict[str, ModelFolder]) -> ModelFolder:
    """The tiny BERT."""
    return folders["bert"]
