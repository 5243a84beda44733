"""A gradient loop that only records its arguments."""

import pytest

from erda.methods import trained
from toy_world import Watch


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch()
    monkeypatch.setattr(trained, "descend", found)
    return found
