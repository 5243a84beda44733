"""Documents say what the code does: the command line, the links, the README's first example."""

import re
import runpy
import shlex
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import erda
from erda.cli.checking import Parser
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
def test_commands_in_documents_parse(page, monkeypatch):
    """Every line `erda ...` is a command as it stands; inside a sentence it may lack words, but has no wrong ones."""

    def refuse(_, message):
        raise ValueError(message)

    monkeypatch.setattr(Parser, "error", refuse)
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?: {4}|\$ )?(erda [a-z].*)", text, flags=re.MULTILINE)
    named = re.findall(r"`(erda [a-z][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    faults = [fault for line in lines for fault in command_faults(line)]
    named_faults = [fault for line in named for fault in command_faults(" ".join(line.split()))]
    faults += [
        fault for fault in named_faults if not re.search("arguments are required|expected .*one argument", fault)
    ]
    assert not faults


def command_faults(line):
    """What the parser has against a line of commands; one with dots or brackets in it only shows a form."""
    if any(word.endswith("...") or word.startswith("[-") for word in shlex.split(line, comments=True)):
        return
    for command in re.sub(r"(;| &&) erda ", "\nerda ", line).splitlines():
        try:
            with suppress(SystemExit):  # after --help
                build_parser().parse_args(shlex.split(command, comments=True)[1:])
        except ValueError as fault:
            yield f"{command}: {fault}"


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
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.split()) <= 700


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_first_example_prints_what_the_page_shows(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, flags=re.DOTALL)
    assert example is not None
    code, expected = example.groups()
    shown: list[str] = []
    source = code.replace("my-model", str(tmp_path / "model"))
    exec(compile(source, page, "exec"), {"print": lambda *parts: shown.append(" ".join(map(str, parts)))})
    assert shown == expected.splitlines()


def test_teaching_page_runs(tmp_path, monkeypatch):
    """Every line of Python in docs/teaching.md runs, in order, and prints what stands beside or below it."""
    text = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    expected = re.findall(r"^(?:\s*print\(.*\)  )?# (.*)$", code, flags=re.MULTILINE)
    shown: list[str] = []
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "teaching.md", "exec"), {"print": lambda *parts: shown.append(" ".join(map(str, parts)))})
    assert shown == expected
