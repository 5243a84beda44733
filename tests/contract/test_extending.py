"""The method in docs/howto/method.md works from a file and from an installed package, and keeps the contract."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from erda import registry
from erda.cli.main import main
from erda.data.catalogue import open_stream
from erda.data.formats.jsonl_examples import example_to_json
from erda.encoders import build_encoder, encoder_settings
from erda.errors import SettingsError
from erda.methods import METHODS, OWN_METHODS, find_method
from erda.settings.load import read_preset, run_settings
from erda.testing import check_method
from toy_world import toy_example, write_vectors

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "method.md"
ENCODER = """
from erda.encoders import EncoderEntry
from erda.fields import Count, Settings

class ToySettings(Settings):
    size: Count = 8

def build(settings, *, seed, device):
    return ("built", settings.size, seed, device)

ENTRY = EncoderEntry(ToySettings, "a toy", build="toy_encoder_plugin:build")
"""
DATASET = """
from pathlib import Path

from erda.data.catalogue import Entry, Shape, load_dataset

def load(folder):
    return load_dataset(Path(__file__).parent / "toy.jsonl")

ENTRY = Entry("a toy", "none", Shape(way=2, shots=3), load)
"""
PRESET = 'description = "A toy."\nlike = "demo"\ndataset = "toy-data"\nmethods = ["nearest-mean"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the file of the page to a folder; remove additions to the tables after the test."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "nearest_mean.py").write_text(code)
    monkeypatch.setenv(OWN_METHODS, "")
    yield tmp_path / "own"
    METHODS.data.pop("nearest-mean", None)
    registry.plugin_paths.cache_clear()


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Turn the folder into an installed distribution with entry points; one of them is broken."""
    info = folder / "nearest_mean-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nearest-mean\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[erda.methods]\nnearest-mean = nearest_mean:NearestMean\nbroken = nowhere_to_be_found:Method\n"
        "erda = nearest_mean:NearestMean\n\n[erda.encoders]\ntoy = toy_encoder_plugin:ENTRY\n\n"
        "[erda.datasets]\ntoy-data = toy_data_plugin:ENTRY\n\n[erda.presets]\ntoys = toy_presets\n"
    )
    (folder / "toy_encoder_plugin.py").write_text(ENCODER)
    (folder / "toy_data_plugin.py").write_text(DATASET)
    (folder / "toy_presets").mkdir()
    (folder / "toy_presets" / "toy-preset.toml").write_text(PRESET)
    (folder / "toy_presets" / "demo.toml").write_text('description = "Never read."')
    monkeypatch.syspath_prepend(str(folder))
    registry.plugin_paths.cache_clear()
    return folder


def run_words(folder: Path, method: str) -> list[str]:
    data = folder / "toy.jsonl"
    examples = [toy_example(number, row) for number in range(4) for row in range(12)]
    data.write_text("\n".join(json.dumps(example_to_json(example)) for example in examples))
    vectors = write_vectors(folder / "vectors.txt")
    sets = ["way=2", "encoder.hidden_size=8", f"encoder.vectors={vectors}"]
    asked = ["--dataset", str(data), "--shots", "3", "--method", method, "--encoder", "bilstm", "--seeds", "1"]
    return [*asked, *(part for one in sets for part in ("--set", one))]


def test_the_method_has_thirty_lines_and_keeps_the_contract(folder: Path) -> None:
    method = find_method(f"{folder / 'nearest_mean.py'}:NearestMean")
    assert sum(bool(line.strip()) for line in inspect.getsource(method).splitlines()) <= 30
    check_method(method)


def test_a_method_from_a_file_runs_and_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = run_words(folder, f"{folder / 'nearest_mean.py'}:NearestMean,emr")
    assert main(["run", *words, "--set", "nearest-mean.scale=2", "--out", str(folder / "runs")]) == 0
    record = json.loads((folder / "runs" / "nearest-mean" / "1" / "record.json").read_text())
    assert (record["method"], record["settings"]["method"]["scale"]) == ("nearest-mean", 2.0)
    capsys.readouterr()
    assert main(["report", str(folder / "runs"), "--no-figures"]) == 0
    assert "nearest-mean" in capsys.readouterr().out
    METHODS.data.pop("nearest-mean")  # as in another process of the same command
    assert find_method("nearest-mean").__name__ == "NearestMean"


def test_a_method_from_a_package_is_listed_and_run(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "methods"]) == 0
    listed = capsys.readouterr().out
    assert "The nearest mean of examples" in listed
    assert re.search(r"broken +\('broken' of erda.methods: .* cannot be imported", listed)
    assert METHODS["erda"].__name__ == "Erda", "a built-in name stays"
    assert main(["run", *run_words(installed, "nearest-mean"), "--out", str(installed / "runs")]) == 0


def test_an_encoder_from_a_package(installed: Path) -> None:
    assert encoder_settings("toy")().model_dump() == {"size": 8}
    assert build_encoder("toy", seed=3, size=5) == ("built", 5, 3, "cpu")
    with pytest.raises(SettingsError, match="size: must be at least 1"):
        build_encoder("toy", size=0)


def test_a_dataset_and_a_preset_from_a_package(installed: Path) -> None:
    run_words(installed, "nearest-mean")  # writes the data
    settings = run_settings(preset="toy-preset", encoder="bilstm")
    assert (settings.dataset, settings.shots, settings.methods) == ("toy-data", 5, ("nearest-mean",)), "like demo"
    assert [len(task.relations) for task in open_stream("toy-data", first_shots=3)] == [2, 2]
    assert read_preset("demo")["dataset"] == "atlas", "a built-in preset stays"
    with pytest.raises(SettingsError, match="Did you mean 'toy-preset'"):
        read_preset("toy-presett")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("none.py:Method", "no such file"),
        ("nothing_like_it:Method", "cannot be imported"),
        ("{folder}/nearest_mean.py:NearestMeen", "Did you mean 'NearestMean'?"),
        ("{folder}/nearest_mean.py:Task", "not a subclass of erda.Method"),
        ("{folder}/broken.py:Method", r"cannot be imported \(ZeroDivisionError"),
        ("{folder}/named.py:Twin", "unique class attribute 'name', got 'erda'"),
    ],
)
def test_an_invalid_method_is_one_line(path: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "named.py").write_text("from erda.methods.erda import Erda\nclass Twin(Erda):\n    pass\n")
    assert main(["run", "--method", path.format(folder=folder), "--out", str(folder / "x")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line)
    assert registry.load_object("erda.types:Span") is not None
