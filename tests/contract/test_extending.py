"""The method of docs/extending.md is tested, listed, run and reported, from one line in the table."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

from erda.cli.main import main
from erda.data.formats.jsonl import example_to_json
from erda.methods import METHODS
from erda.testing import check_method
from toy_world import toy_example, write_vectors

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def nearest_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's file and its line in the table."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    path = tmp_path / "nearest_mean.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("nearest_mean", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "nearest_mean", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, "nearest-mean", module.NearestMean)
    return "nearest-mean"


def test_it_is_thirty_lines_and_keeps_the_contract(nearest_mean: str) -> None:
    lines = inspect.getsource(METHODS[nearest_mean]).splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 30
    check_method(METHODS[nearest_mean])


def test_the_command_line_and_the_report_know_it(
    nearest_mean: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "methods"]) == 0
    assert "The nearest mean of examples" in capsys.readouterr().out

    data = tmp_path / "toy.jsonl"
    examples = [toy_example(number, row) for number in range(4) for row in range(12)]
    data.write_text("\n".join(json.dumps(example_to_json(example)) for example in examples))
    vectors = write_vectors(tmp_path / "vectors.txt")
    sets = ["way=2", "encoder.hidden_size=8", f"encoder.vectors={vectors}", "nearest-mean.scale=2"]
    asked = ["--dataset", str(data), "--shots", "3", "--method", "nearest-mean,emr", "--encoder", "bilstm"]
    asked += ["--seeds", "1,2"] + [part for one in sets for part in ("--set", one)]
    assert main(["run", *asked, "--out", str(tmp_path / "runs")]) == 0
    record = json.loads((tmp_path / "runs" / "nearest-mean" / "1" / "record.json").read_text())
    assert record["settings"]["method"]["scale"] == 2.0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs")]) == 0
    assert "nearest-mean" in capsys.readouterr().out
