"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with FewRel and the published splits; tests that need it carry the mark `fewrel`."""
    folder = os.environ.get("ERDA_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set ERDA_DATA to the data folder (docs/data.md says what it holds)")
    return Path(folder)
