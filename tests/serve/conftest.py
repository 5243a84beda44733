"""Fixtures of the server's tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of the page, one for all tests of a file."""
    with serving(toy_store(tmp_path_factory.mktemp("page") / "store")) as found:
        yield found


@pytest.fixture
def page(site: Served, browser: Any) -> Iterator[Any]:
    """The page over the store as `toy_store` made it; a fault of a script fails the test."""
    site.post("/v1/undo", {"to": 2})
    with browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True) as context:
        page, faults = context.new_page(), list[str]()
        page.set_default_timeout(60_000)  # the machine may be busy
        page.on("pageerror", lambda fault: faults.append(str(fault)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        page.goto(site.url)
        yield page
        assert not faults
