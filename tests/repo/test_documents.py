"""Documents say what the code does: the command line, the links, the README's first example."""

import inspect
import re
import runpy
import shlex
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import erda
from erda.cli.checking import Parser
from erda.cli.main import build_parser

ROOT = Path(__file__).parents[2]
WRITER = runpy.run_path(str(ROOT / "docs" / "cli.py"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
whole_parser = cache(build_parser)


def test_cli_page_is_what_the_parsers_say():
    page = WRITER["render"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run `make docs` and commit docs/cli.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_documents_parse(page, monkeypatch):
    """Every line `erda ...` parses; a command quoted in a sentence may lack arguments but has no wrong ones."""

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
                whole_parser().parse_args(shlex.split(command, comments=True)[1:])
        except ValueError as fault:
            yield f"{command}: {fault}"


def test_every_public_name_is_there_typed_and_documented():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## The public names")[2].partition("\n## ")[0]
    names = {name for name in erda.__all__ if name != "__version__"}
    assert set(re.findall(r"`(\w+)`", table)) == names
    assert WRITER["STUB"].read_text(encoding="utf-8") == WRITER["render_stub"](), "run `make docs`"
    for home, listed in erda.PUBLIC.items():
        for name in listed:
            value = getattr(erda, name)
            assert value is getattr(import_module(home), name)
            documented = isinstance(value, type) or callable(value)
            assert not documented or len(inspect.getdoc(value) or "") > 20, name
            assert not is_dataclass(value) or not value.__doc__.startswith(f"{name}("), f"{name}: made by dataclass"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = erda.nothing


def named_types(kind):
    """All classes in an annotation, and in the fields of those that are dataclasses."""
    found, left = set(), [kind]
    while left:
        one = left.pop()
        left += get_args(one)
        if isinstance(one, type) and one.__module__.startswith("erda.") and one not in found:
            found.add(one)
            left += get_type_hints(one).values() if is_dataclass(one) else ()
    return found


def test_every_type_that_an_extractor_returns_is_public():
    public = {
        getattr(erda, name) for names in erda.PUBLIC.values() for name in names if isinstance(getattr(erda, name), type)
    }
    returned = set()
    members = {name: member for kind in reversed(erda.Extractor.__mro__[:-1]) for name, member in vars(kind).items()}
    for name, member in members.items():
        act = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and callable(act):
            returned |= named_types(get_type_hints(act).get("return"))
    assert {erda.Answer, erda.Taught, erda.Lesson, erda.Version, erda.RelationScore} <= returned
    assert returned <= public, [one.__name__ for one in returned - public]


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
