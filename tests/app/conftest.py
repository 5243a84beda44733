"""Fixtures of the tests of an extractor."""

from pathlib import Path

import pytest
from toy_extractor import taught

from erda.app.extractor import Extractor


@pytest.fixture
def extractor(tmp_path: Path) -> Extractor:
    """An extractor with three relations."""
    return taught(tmp_path / "mine")


@pytest.fixture
def no_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the packaged tagger nor spaCy is installed."""
    monkeypatch.setattr("erda.app.entities.find_spec", lambda name: None)
    monkeypatch.setattr("erda.app.entities.model_folder", lambda: None)
