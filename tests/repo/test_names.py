"""Names: a file, class or function name occurs once in the source, and names in documents exist."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "erda"
FOLDERS = ("benchmarks", "docs", "examples", "packages", "research", "results", "src", "tests", "tools", ".ci")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOPS = "|".join(map(re.escape, FOLDERS))
FILE = re.compile(rf"[\w./*-]+\.pyi?|(?:{TOPS})/[\w./*-]+")
SCRIPT = re.compile(rf"\bpython ((?:{TOPS})/[\w./-]+)")
SAVED = re.compile(r"`([\w-]+\.py)`[^`]*:\n\n```")  # a file that the reader of the page writes
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
SHARED = {  # names that several modules must have
    "__init__.py",
    "def add_parser",  # a module of `erda.cli`
    "def run",  # the handler of a command
    "def main",  # of the command `erda`, and of the script in an export
}


def defined() -> Iterator[tuple[str, str]]:
    """Names of all files, classes and public functions of the package, each with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        place = str(path.relative_to(SOURCE))
        yield path.name, place
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                kind = "class" if isinstance(node, ast.ClassDef) else "def"
                yield f"{kind} {node.name}", f"{place}:{node.lineno}"


def test_no_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for name, place in defined():
        places[name].append(place)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in SHARED} == {}, "rename all but one"
    assert sorted(SHARED - twice.keys()) == [], "no longer shared: remove from SHARED"


def test_names_of_test_files_are_unique() -> None:
    """Pytest imports test files and toys by their names alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []


@cache
def repository() -> tuple[str, ...]:
    """Paths of all files and folders of the repository, each with a leading slash."""
    found = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return tuple(f"/{path.relative_to(ROOT)}" for path in found)


@cache
def words() -> frozenset[str]:
    """All names and words in the code of the repository, and quoted names of scripts that it writes."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in (*files, ROOT / "Makefile", ROOT / "pyproject.toml")]
    return frozenset(word for text in texts for word in re.findall(r'(?<=")\w+\.py(?=")|\w+', text))


def exists(name: str) -> bool:
    """Whether the end of a path in the repository matches; `*` stands for any characters of a file name."""
    pattern = re.compile(f"/{re.escape(name.strip('/')).replace(re.escape('*'), '[^/]*')}$")
    return any(pattern.search(path) for path in repository())


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_constants_named_in_documents_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    files = {*filter(FILE.fullmatch, named), *SCRIPT.findall(text)} - set(SAVED.findall(text))
    constants = set(filter(CONSTANT.fullmatch, named))
    missing = sorted(name for name in {*files, *constants} - words() if not exists(name))
    assert not missing, f"{page.name} names what is not in the repository; correct the page"
