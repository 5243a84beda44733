"""Every program of examples/ runs and prints what it promises; so does the notebook."""

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from erda.methods import METHODS
from erda.registry import load_object
from erda.testing import check_method

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTPUTS = {
    "teach_from_csv": """\
Version 1: 6 new examples; new: founded by, born in.
SpaceX | founded by | Elon Musk
Nikola Tesla | born in | Smiljan
Mozart | None | The Magic Flute
""",
    "review_own_text": """\
before the review:
  Patagonia | Yvon Chouinard
  Whole Foods | Jeff Bezos
  Spanx | Sara Blakely
  Lauder Cosmetics | She
after 4 judgements:
  Patagonia | Yvon Chouinard
  Spanx | Sara Blakely
  Lauder Cosmetics | She
""",
    "spacy_pipeline": "Amazon | founded by | Jeff Bezos\nJeff Bezos | born in | Albuquerque\n",
    "http_client": """\
Version 1: 6 new examples; new: founded by, born in.
SpaceX | founded by | Elon Musk
[]
""",
    "corpus": """\
1.0  Patagonia was set up by Yvon Chouinard in 1973 .
0.9  Sara Blakely started Spanx with her savings .
5 examples of founded by
""",
}


def without_confidences(text: str) -> list[str]:
    return [line.partition("  ")[2] if line[:2] in ("0.", "1.") else line for line in text.splitlines()]


@pytest.fixture(autouse=True)
def no_trained_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model_folder", "installed_pipeline"):
        monkeypatch.setattr(f"erda.app.entities.{name}", lambda: None)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_program_prints_what_it_should(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert without_confidences(capsys.readouterr().out) == without_confidences(OUTPUTS[name])


def test_every_program_is_short_listed_and_run() -> None:
    programs = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert programs.keys() == OUTPUTS.keys()
    own = (EXAMPLES / "own_method" / "nearest_example.py").read_text(encoding="utf-8")
    assert max(len(text.splitlines()) for text in [*programs.values(), own]) < 60
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name}.py)" in listed for name in programs)


def test_the_method_in_a_package_is_named_by_its_entry_point_and_keeps_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = EXAMPLES / "own_method"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((name, target),) = project["entry-points"]["erda.methods"].items()
    module, _, member = target.partition(":")
    method = load_object(f"{folder / module}.py:{member}")
    assert method.name == name
    monkeypatch.setitem(METHODS, name, method)
    check_method(method)


def printed_by(notebook: Any) -> str:
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    return "".join(one["text"] for one in outputs if one.get("name") == "stdout")


def test_the_notebook_is_the_first_program_with_its_output() -> None:
    import nbformat

    notebook = nbformat.read(EXAMPLES / "teach_from_csv.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert printed_by(notebook) == OUTPUTS["teach_from_csv"]


@pytest.mark.long
def test_the_notebook_runs() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "teach_from_csv.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    assert printed_by(notebook) == OUTPUTS["teach_from_csv"]
