"""The core install: every extractor command works with the core dependencies alone and never imports PyTorch."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ("torch", "transformers", "numba", "onnx", "pyarrow", "scipy", "sklearn", "pandas", "sentence_transformers")
SENTENCES = ["[[SpaceX]] was founded by {{Elon Musk}}.", "{{Steve Jobs}} founded [[Apple]] in a garage."]
QUESTION = "[[Tesla]] was started by {{Martin Eberhard}}."
# Blocks the modules of all extras, runs commands in turn and prints which modules they imported.
BARE = f"""
import json, sys
for name in {TRAINING!r}:
    sys.modules[name] = None
from erda.cli.main import main
statuses = [main(words) for words in json.loads(sys.argv[1])]
loaded = sorted(name for name, module in sys.modules.items() if module is not None and "." not in name)
print(json.dumps([statuses, loaded]), file=sys.stderr)
"""


def run(folder: Path, *commands: Sequence[str]) -> set[str]:
    """Run commands in a process without the extras; return the top-level modules that they imported."""
    ran = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(commands)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    statuses, loaded = json.loads(ran.stderr.splitlines()[-1])
    assert not any(statuses), (statuses, ran.stderr)
    return set(loaded)


def test_every_extractor_command_runs_without_the_extras(tmp_path: Path) -> None:
    (tmp_path / "questions.txt").write_text(f"{QUESTION}\n{SENTENCES[0]}\n")
    (tmp_path / "examples.jsonl").write_text(json.dumps({"text": SENTENCES[0], "relation": "founded by"}) + "\n")
    (tmp_path / "text.txt").write_text("SpaceX was founded by Elon Musk .\n")
    (tmp_path / "names.txt").write_text("SpaceX\nElon Musk\n")
    commands = [
        ("data", "convert", "examples.jsonl", "--out", "examples.csv"),
        ("teach", "founded by", *SENTENCES),
        ("teach", "born in", "[[Marie Curie]] was born in {{Warsaw}}."),
        ("predict", QUESTION),
        ("predict", "questions.txt", "--out", "answers.csv"),
        ("extract", "text.txt", "--names", "names.txt"),
        ("evaluate", "examples.jsonl"),
        ("relations",),
        ("forget", "born in"),
        ("versions", "--undo"),
        ("export", "exported"),
        ("demo", "extractor"),
    ]
    assert not run(tmp_path, *commands) & {*TRAINING}
    light = run(tmp_path, ("relations",), ("versions",))
    assert not light & {*TRAINING, "onnxruntime", "tokenizers", "numpy", "pydantic"}
    assert (tmp_path / "answers.csv").is_file()


def test_the_benchmark_runs_posterior_over_the_packaged_encoder_without_the_extras(tmp_path: Path) -> None:
    encoder = ("--encoder", "open")
    small = ("--dataset", "atlas", "--seeds", "100")
    small += ("--set", "n_tasks=2", "--set", "first_shots=5", "--set", "test_per_relation=2")
    run(tmp_path, ("run", "--method", "posterior", *encoder, *small, "--out", "runs"))
    record = json.loads((tmp_path / "runs/posterior/100/record.json").read_text())
    assert len(record["accuracy"]["all-seen"]) == 2


def test_a_missing_extra_is_named_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BARE, json.dumps([["teach", "founded by", SENTENCES[0], "--method", "emr"]])]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said, listed = ran.stderr.splitlines()
    assert "pip install 'erda[train]'" in said
    assert json.loads(listed)[0] == [2]


def test_no_core_dependency_needs_pytorch() -> None:
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo, seen = list(map(Requirement, project["dependencies"])), set[str]()
    while todo:
        one = todo.pop()
        if one.name not in seen and (one.marker is None or one.marker.evaluate({"extra": ""})):
            seen.add(one.name)
            todo += map(Requirement, requires(one.name) or [])
    assert len(seen) > 10
    assert not seen & {"torch", "transformers", "numba", "scipy", "pyarrow"}


@pytest.mark.long
@pytest.mark.timeout(1200)  # a busy machine
def test_a_newcomer_types_what_the_readme_shows_and_has_an_answer_in_two_minutes(tmp_path: Path) -> None:
    """From `pip install` in an empty environment to the output of the README's first example.

    Two minutes of processor time: on an idle core with a package index at hand, that is the time on the clock.
    """
    clone, python = tmp_path / "clone", tmp_path / "venv" / "bin" / "python"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "build", "runs", "*.egg-info"))
    readme = (clone / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL)
    (_, install), (language, example), (_, expected) = blocks[:3]
    assert (install.split(), language) == (["pip", "install", "."], "python")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ERDA"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(python), "-m", *install.split(), "-q"], cwd=clone, env=clean, check=True)
    ran = subprocess.run(
        [str(python), "-c", example], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.stdout == expected
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 120
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    assert not (packages / "torch").exists()


@pytest.mark.long
def test_the_wheel_is_small(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*pip, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("erda-*.whl")
    assert wheel.stat().st_size < 45e6
