"""Fixtures of the benchmark's tests; pytest also makes the toys of this folder importable from the folders below."""

import pytest
from toy_runs import toy_record

from erda.benchmark.records import Record


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record of three tasks, to be changed with `dataclasses.replace`."""
    return toy_record(tmp_path_factory.mktemp("toy"))
