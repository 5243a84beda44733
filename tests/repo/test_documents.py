"""Documents say what the code does: the command line, the links, the README's first example."""

import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

import erda
from erda.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_cli_page_is_what_the_parsers_say():
    page = runpy.run_path(str(ROOT / "docs" / "cli.py"))["render"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run `make docs` and commit docs/cli.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_documents_exist(page):
    """Every `erda COMMAND` of a document is a command of the parser."""
    commands = build_parser()._subparsers._group_actions[0].choices
    named = set(re.findall(r"(?:^|`|\$ )erda ([a-z]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named <= set(commands)


def test_every_public_name_is_there_typed_and_documented():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## The public names")[2].partition("\n## ")[0]
    stub = (ROOT / "src" / "erda" / "__init__.pyi").read_text(encoding="utf-8")
    names = {name for name in erda.__all__ if name != "__version__"}
    assert set(re.findall(r"`(\w+)`", table)) == names
    assert set(re.findall(r"import (\w+) as \1$", stub, flags=re.MULTILINE)) == names
    for name in names:
        module = re.search(rf"from (\S+) import {name} as", stub)
        assert module is not None
        assert getattr(erda, name) is getattr(import_module(module[1]), name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = erda.nothing


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_readme_loop_runs(tmp_path):
    """The README's Python example runs as it stands and prints what it shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert code is not None
    shown: list[str] = []
    source = code.group(1).replace("my-model", str(tmp_path / "model"))
    exec(compile(source, "README.md", "exec"), {"print": lambda *parts: shown.append(" ".join(map(str, parts)))})
    assert len(shown) >= 3


def test_teaching_page_runs(tmp_path, monkeypatch):
    """Every line of Python in docs/teaching.md runs, in order, and prints what stands beside or below it."""
    text = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    expected = re.findall(r"^(?:\s*print\(.*\)  )?# (.*)$", code, flags=re.MULTILINE)
    shown: list[str] = []
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "teaching.md", "exec"), {"print": lambda *parts: shown.append(" ".join(map(str, parts)))})
    assert shown == expected
