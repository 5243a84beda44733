"""The package as others get it: metadata that agree, the paper's form, and a source distribution with everything."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_version_licence_and_keywords_agree_in_all_files() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    assert citation["version"] == zenodo["version"] == PROJECT["version"]
    assert citation["license"] == zenodo["license"] == PROJECT["license"]
    assert citation["title"] == zenodo["title"]
    assert citation["keywords"] == zenodo["keywords"]
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in zenodo["creators"]]


def test_the_paper_has_the_form_that_the_journal_asks_for() -> None:
    _, head, body = (ROOT / "paper.md").read_text().split("---\n", 2)
    about = yaml.safe_load(head)
    assert about.keys() >= {"title", "tags", "authors", "affiliations", "date", "bibliography"}
    sections = re.findall(r"^# (.+)$", body, flags=re.MULTILINE)
    assert {"Summary", "Statement of need", "State of the field", "Software design", "References"} <= set(sections)
    assert 250 <= len(body.split()) <= 1000
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / about["bibliography"]).read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"@(\w+)", body)) == known


@pytest.mark.long
def test_the_source_distribution_holds_tests_documents_and_records(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copy = tmp_path / "copy"
    for name in filter(None, tracked.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, check=True)
    (archive,) = (copy / "dist").glob("erda-*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
        about = packed.extractfile(f"erda-{PROJECT['version']}/PKG-INFO").read().decode()
    of_repository_only = (".ci/", ".gitignore", ".dockerignore", ".github/")
    wanted = {name for name in tracked.split("\0") if name and not name.startswith(of_repository_only)}
    assert sorted(wanted - names) == []
    assert not [name for name in names if "__pycache__" in name]
    assert "Classifier: Programming Language :: Python :: 3.13" in about
