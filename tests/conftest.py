"""Fixtures that every test may use."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The default suite repeats the same cases, so that a submission fails for its own faults only.
# `make test-all` sets the profile `explore`, which draws new cases each time.
# No case has a deadline: a busy machine may stop for a second.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", PATIENT, derandomize=True, max_examples=30)
settings.register_profile("explore", PATIENT, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
gc.set_threshold(100_000)  # with all libraries loaded, a full collection takes a third of a second


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with FewRel and the published splits; tests that need it carry the mark `fewrel`."""
    folder = os.environ.get("ERDA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set ERDA_DATA to the data folder (docs/data.md says what it holds)")
    return Path(folder)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium; tests that need it carry the mark `browser`."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs a browser: no chromium is installed here (Debian: apt-get install chromium)")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'erda[dev]'")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
        )


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are built and written but not painted, which takes half a second each; test_figures.py paints them."""
    blank = b'<svg viewBox="0 0 1 1"></svg>'
    monkeypatch.setattr("erda.benchmark.report.figures._bytes", lambda *_, **__: blank)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A `Record` of three tasks, to be changed with `dataclasses.replace`."""
    from toy_runs import toy_record

    return toy_record(tmp_path_factory.mktemp("toy"))
