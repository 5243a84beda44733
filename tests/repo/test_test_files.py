"""Pytest imports test files and toys by their names alone, so no two may share one."""

from collections import Counter
from pathlib import Path


def test_names_of_test_files_are_unique() -> None:
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
