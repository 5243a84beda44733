"""Documents say what the code does: generated pages, links, snippets, the site."""

import inspect
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from snippets import run_page

import erda
from erda import answers
from erda.cli.checking import Parser
from erda.cli.main import build_parser

ROOT = Path(__file__).parents[2]
WRITER = runpy.run_path(str(ROOT / "docs" / "reference.py"))
SITE = runpy.run_path(str(ROOT / "docs" / "conf.py"))
PAGES = sorted(
    page
    for pattern in SITE["include_patterns"]
    for page in ROOT.glob(pattern.removesuffix("**") + "**/*.md" if pattern.endswith("**") else pattern)
    if page.name not in SITE["exclude_patterns"]
)
RUN = ["README.md"]
RUN += [
    f"docs/{name}.md" for name in ("architecture", "atlas", "data", "encoders", "similarity", "teaching", "tutorial")
]
RUN += [f"docs/howto/{name}.md" for name in ("api", "corpus", "csv", "graph", "spacy")]
SLOW = ["docs/encoders.md", "docs/similarity.md"]  # PyTorch
SLOW += [f"docs/howto/{name}.md" for name in ("api", "corpus", "csv", "graph", "spacy")]  # examples/ has short programs
LONG = [pytest.mark.long]
RUN_ELSEWHERE = ["docs/howto/method.md"]  # tests/contract/test_extending.py
whole_parser = cache(build_parser)


@pytest.mark.parametrize("name", ["cli", "http"])
def test_generated_pages_are_current(name):
    page = WRITER[f"render_{name}"]()
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == page, "run `make docs` and commit docs/"


def without_code(page):
    """The text of a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors of a page's headings, as code hosts and the site make them."""
    titles = re.findall(r"^#+ (.*)$", without_code(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_prose_wraps_at_100_characters():
    for page in PAGES:
        prose = [line for line in without_code(page).splitlines() if not line.startswith(("|", "#", "    ", "<"))]
        long = [line for line in prose if len(line) > 100 and " " in line.lstrip("-* ")[:100]]
        assert not long, (page.name, long)


def test_decisions_have_at_most_ten_lines():
    _, *entries = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").split("\n## ")
    assert {
        title: n for title, _, text in (one.partition("\n") for one in entries) if (n := text.count("\n") - 1) > 10
    } == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            missing.append(link)
    assert not missing


def test_every_page_is_in_the_table_of_contents_and_linked():
    index = ROOT / "docs" / "index.md"
    text = index.read_text(encoding="utf-8")
    lists = "\n".join(re.findall(r"^```{toctree}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    listed = re.findall(r"<(.*)>", lists)
    pages = {page.relative_to(ROOT) for page in PAGES} - {Path("docs/index.md")}
    assert sorted(Path(f"{name[1:]}.md" if name[0] == "/" else f"docs/{name}.md") for name in listed) == sorted(pages)
    links = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)\)", text)}
    assert links >= {ROOT / page for page in pages}


@pytest.mark.long
def test_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs", ".", tmp_path]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "docs/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
    page = (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
    assert {name for name in public_names() if f'id="{name}"' in page} == public_names()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
    faults += [fault for fault in named_faults if not re.search("arguments .*required|expected .*one argument", fault)]
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


def public_names():
    """All public names with their modules."""
    lazy = {f"{package}.{name}" for package in WRITER["PACKAGES"] for name in import_module(package).__all__}
    own = (name for name, one in vars(answers).items() if getattr(one, "__module__", "") == "erda.answers")
    return lazy | {f"erda.answers.{name}" for name in own if is_dataclass(getattr(answers, name))}


def test_every_public_name_is_there_typed_and_documented():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\.\. [\w:]+:: ([\w.]+)$", page, flags=re.MULTILINE)) == public_names()
    for stub, text in WRITER["render_stubs"]().items():
        assert stub.read_text(encoding="utf-8") == text, "run `make docs`"
    for full in public_names():
        module, _, name = full.rpartition(".")
        value = getattr(import_module(module), name)
        documented = isinstance(value, type) or callable(value)
        assert not documented or len(inspect.getdoc(value) or "") > 20, name
        assert not is_dataclass(value) or not value.__doc__.startswith(f"{name}("), f"{name}: made by dataclass"
    for package in WRITER["PACKAGES"]:
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
            _ = import_module(package).nothing


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
    values = (getattr(import_module(home), name) for home, _, name in (one.rpartition(".") for one in public_names()))
    public = {value for value in values if isinstance(value, type)}
    returned = set()
    members = {name: member for kind in reversed(erda.Extractor.__mro__[:-1]) for name, member in vars(kind).items()}
    for name, member in members.items():
        act = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and callable(act):
            returned |= named_types(get_type_hints(act).get("return"))
    assert {answers.Answer, answers.Taught, erda.Lesson, erda.Version, answers.RelationScore} <= returned
    assert returned <= public, [one.__name__ for one in returned - public]


def test_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.split()) <= 700


def test_every_snippet_of_python_is_run():
    with_python = [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]
    assert {str(page.relative_to(ROOT)) for page in with_python} <= {*RUN, *RUN_ELSEWHERE}


@pytest.mark.parametrize("page", [pytest.param(page, marks=LONG if page in SLOW else ()) for page in RUN])
def test_snippets_print_what_the_page_shows(page):
    shown = run_page(ROOT / page)
    assert shown
    wrong = [f"{one.snippet}\n{one.real}" for one in shown if not one.is_same]
    assert not wrong, f"python tests/repo/snippets.py {page}\n" + "\n".join(wrong)
