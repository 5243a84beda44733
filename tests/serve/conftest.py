"""Fixtures of the server's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_server import Served, serving, toy_store

from erda.app.extractor import Extractor


@pytest.fixture(autouse=True)
def no_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities are found by capital letters, so that no test loads spaCy."""
    monkeypatch.setattr("erda.app.entities.model_folder", lambda: None)
    monkeypatch.setattr("erda.app.entities.installed_pipeline", lambda: None)


@pytest.fixture
def extractor(tmp_path: Path) -> Extractor:
    return toy_store(tmp_path / "store")


@pytest.fixture
def served(extractor: Extractor) -> Iterator[Served]:
    with serving(extractor) as found:
        yield found
