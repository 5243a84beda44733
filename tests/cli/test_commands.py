"""The command line as a user meets it: what it prints, where, and with which exit status."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from erda.cli.main import build_parser, main
from erda.errors import EXTRAS
from erda.methods import METHODS
from erda.settings.load import run_settings
from erda.settings.runs import RunSettings
from erda.types import Task

RELATIONS = ("founder", "capital", "player", "author", "river", "member")


@pytest.fixture(scope="module")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.jsonl"
    rows = [
        {
            "tokens": ["Ada", str(number), "was", word, "of", "Rome", word],
            "head": {"name": "Ada", "span": [0, 1]},
            "tail": {"name": "Rome", "span": [5, 6]},
            "relation": f"{word} of",
            "id": f"{word}-{number}",
        }
        for word in RELATIONS
        for number in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_command(data: Path, out: Path, *more: str) -> list[str]:
    small = ["--set", "way=2", "--set", "candidates=3", "--set", "encoder.hidden_size=16"]
    paper = ["--method", "erda", "--encoder", "bilstm"]
    return ["run", "--dataset", str(data), "--shots", "2", *paper, *small, "--out", str(out), *more]


def record(out: Path, method: str, seed: int) -> dict[str, object]:
    value = json.loads((out / method / str(seed) / "record.json").read_text())
    del value["seconds"], value["peak_memory_mb"], value["seal"]  # the seal covers the others
    return value


def test_help_imports_nothing_heavy() -> None:
    heavy = "('pydantic', 'torch', 'numpy', 'matplotlib', 'transformers', 'tqdm', 'pooch', 'duckdb', 'scipy')"
    script = f"import sys, erda.cli.main as m; m.build_parser(); print([n for n in {heavy} if n in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_command_that_leaves_at_once_writes_everything_and_runs_exit_handlers(tmp_path: Path) -> None:
    script = "import atexit, sys; atexit.register(print, 'last'); from erda.__main__ import main; sys.exit(main())"
    listed, failed = (
        subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        for words in (("list", "datasets"), ("relations",))
    )
    assert (listed.returncode, failed.returncode) == (0, 2)
    assert listed.stdout.startswith("atlas")
    assert listed.stdout.splitlines()[-1] == "last"
    assert failed.stderr.startswith("erda: There is no extractor")


@pytest.mark.parametrize(
    ("what", "expected"),
    [("methods", "contrastive_weight = 0.1"), ("encoders", "encoder.hidden_size = 100"), ("presets", "fewrel-5-shot")],
)
def test_lists(what: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.usefixtures("unpainted")
def test_run_leaves_records_and_report_reads_them(
    own_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    command = run_command(own_data, out, "--method", "erda,seqrun", "--seeds", "1,2")
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "protocol all-seen" in printed
    assert "protocol candidates" in printed
    assert "Runs done: 4; already there: 0" in printed
    value = record(out, "erda", 2)
    assert value["settings"]["stream"] == {"way": 2, "candidates": 3}
    assert len(value["accuracy"]["all-seen"]) == 3
    assert set(value["packed"]) == {"gold", "all-seen", "candidates"}
    assert main(command) == 0
    assert "Runs done: 0; already there: 4" in capsys.readouterr().out
    assert main(["report", str(out)]) == 0
    assert "Every run after task 3" in capsys.readouterr().out
    assert (out / "report/curve.png").exists()


@pytest.mark.parametrize("method", ["erda", "posterior"])
def test_ctrl_c_leaves_no_record_and_the_same_command_runs_again(
    method: str, own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--method", method, "--seeds", "1"]
    assert main(run_command(own_data, tmp_path / "whole", *command)) == 0
    learn = METHODS[method]._learn

    def press_ctrl_c(self: object, task: Task, generator: object) -> None:
        if task.index == 1:
            os.kill(os.getpid(), signal.SIGINT)
        learn(self, task, generator)

    monkeypatch.setattr(METHODS[method], "_learn", press_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores Ctrl-C
    try:
        assert main(run_command(own_data, tmp_path / "parts", *command)) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "the same command continues" in capsys.readouterr().err
    assert not (tmp_path / "parts" / method).exists()
    monkeypatch.setattr(METHODS[method], "_learn", learn)
    assert main(run_command(own_data, tmp_path / "parts", *command)) == 0
    assert record(tmp_path / "parts", method, 1) == record(tmp_path / "whole", method, 1)


@pytest.mark.long
def test_processes_leave_the_same_records(own_data: Path, tmp_path: Path) -> None:
    command = ["--method", "erda", "--seeds", "1,2"]
    assert main(run_command(own_data, tmp_path / "one", *command)) == 0
    assert main(run_command(own_data, tmp_path / "two", *command, "--jobs", "2")) == 0
    for seed in (1, 2):
        assert record(tmp_path / "one", "erda", seed) == record(tmp_path / "two", "erda", seed)
    assert not (tmp_path / "two/.frozen").exists()


@pytest.mark.usefixtures("unpainted")
def test_a_small_demo_shows_its_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(*, settings: dict[str, object] | None = None, **given: object) -> RunSettings:
        return run_settings(
            settings={"n_tasks": 2, "first_shots": 5, "test_per_relation": 2, **(settings or {})}, **given
        )

    monkeypatch.setattr("erda.settings.load.run_settings", small)
    monkeypatch.setattr("erda.cli.demo_commands.N_SENTENCES", 60)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for expected in ("chance", "forgetting", "erda (corpus=atlas-corpus)"):
        assert expected in printed
    assert len([*(tmp_path / "report").rglob("curve.png")]) == 2, "one per encoder"
    assert record(tmp_path / "posterior", "posterior", 100)["accuracy"]["all-seen"][-1] > 0.5
    assert "8 of 8 before, 8 of 8 after for the first four relations; 2 of 2 for the fifth." in printed


def test_a_run_needs_no_more_than_it_uses(own_data: Path, tmp_path: Path) -> None:
    """SeqRun needs the extra `train` alone."""
    missing = [module for module, extra in EXTRAS.items() if extra != "train" and module != "scipy"]
    command = run_command(own_data, tmp_path, "--method", "seqrun", "--seeds", "1")
    script = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\nfrom erda.cli.main import main\n"
    script += f"sys.exit(main({command!r}))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "Runs done: 1" in answer.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("predct x", "Unknown command 'predct'. Did you mean 'predict'? See: erda --help"),
        ("list Metods", "Unknown word 'Metods'. Did you mean 'methods'? Known: datasets, encoders, methods, presets."),
        ("run --sed=3 --out x", "Unknown option '--sed'. Did you mean '--seeds'? See: erda run --help"),
        ("serve x --engine rya", "Unknown --engine 'rya'. Did you mean 'ray'? Known: local, ray."),
        ("versions --keep 0", "argument --keep: must be at least 1, got 0. See: erda versions --help"),
        ("versions foo", "One argument too many: 'foo'. See: erda versions --help"),
        ("run", "the following arguments are required: --out. See: erda run --help"),
        ("teach --\x1b x", "Unknown option '--\\x1b'."),
        ("run --out x --method erdaa", "Did you mean 'erda'?"),
        ("run --out x --shots 0", "--shots: must be at least 1, got 0."),
        ("run --out x --jobs 0", "--jobs: must be at least 1, got 0."),
        ("predict x --top 0", "--top: must be at least 1, got 0."),
        ("relations --store ", "argument --store: expected a name, got nothing."),
        ("report nowhere", "there is no such folder"),
        ("run --preset fewrel-5shot --out x", "Unknown preset 'fewrel-5shot'. Did you mean 'fewrel-5-shot'?\n"),
        ("run --set temprature=1 --method erda --out x", "Unknown setting 'temprature'. Did you mean 'temperature'?\n"),
        ("run --set corpus=a\nb --out x", "corpus: a\\nb is not a folder"),
    ],
)
def test_a_fault_is_one_line_with_the_nearest_name_and_nothing_is_begun(
    words: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status: object = main(words.split(" "))
    except SystemExit as stopped:
        status = stopped.code
    printed = capsys.readouterr()
    assert (status, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert printed.err.startswith("erda: ")
    assert said in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("teach REL --description d S1 --store x S2", {"sentences": ["S1", "S2"], "description": ["d"]}),
        ("teach --store x REL S1 --encoder e S2", {"relation": "REL", "sentences": ["S1", "S2"], "encoder": "e"}),
        ("teach REL --store x -- -S1 -S2", {"relation": "REL", "sentences": ["-S1", "-S2"]}),
        ("teach --file f", {"relation": None, "sentences": [], "file": "f"}),
        ("extract --pairs both --store x", {"file": "-", "pairs": "both"}),
        ("corpus build a --out x b", {"sources": [Path("a"), Path("b")], "out": Path("x")}),
    ],
)
def test_options_may_stand_anywhere(words: str, read: dict[str, object]) -> None:
    found = vars(build_parser().parse_args(words.split()))
    assert {name: found[name] for name in read} == read
