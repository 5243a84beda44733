"""The trial of `make torture`: a small one runs here, and it notices what it is there to notice."""

import json
import os
import random
import re
import runpy
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import changes
import damage as damaging
import names
import ownership
import pytest
import toys
from mutations import damage
from processes import Answer, ask
from trial import Case, Runner, Trial, Verdict, content_of, differing, leftovers, unclear

from erda.cli.main import build_parser

ROOT = Path(__file__).parents[2]
TRIAL = runpy.run_path(str(ROOT / "tests/torture/__main__.py"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_small_trial_ends_well(tmp_path: Path) -> None:
    """Nothing ends in a traceback, nothing is silently wrong, nothing is lost."""
    command = [sys.executable, str(ROOT / "tests" / "torture"), "--scale", "0.004", "--seed", "1", "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "--failures", str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| damage | 40 | 40 | 0 | 0 | 0 |" in done.stdout


def test_every_command_of_the_trial_parses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command or option counts as a clear answer, so the trial itself does not notice it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "taught" / "versions").mkdir(parents=True)
    calls: list[Any] = [toys.RUN, toys.BUILD, toys.TRAIN, toys.INDEX, toys.AUGMENT, toys.FROZEN, toys.TEACH, toys.MORE]
    calls += [toys.REJECT, toys.TUNE, toys.PREDICT, changes.REVIEW, *(writing.call for writing in ownership.WRITINGS)]
    calls += [command.words for command in (*changes.EDITS, *changes.OUTPUTS)]
    calls += [question.call for question in damaging.QUESTIONS]
    calls += [call for place in names.PLACES for call in place(tmp_path, "name")]
    for call in calls:
        if not callable(call):
            with suppress(SystemExit):
                build_parser(call[0]).parse_args(list(call))
            said = capsys.readouterr().err
            assert not re.search("Unknown|too many|required", said), (call, said)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(0, "", ""), None),
        (Answer(2, "", "erda: x.json: is damaged.\n"), None),
        (Answer(2, "", "usage: erda run\n"), "traceback"),
        (Answer(2, "", ""), "traceback"),
        (Answer(1, "", "erda: no\n"), "traceback"),
        (Answer(-7, "", ""), "traceback"),
        (Answer(0, "", "Traceback (most recent call last)\nKeyError: 'a'\n"), "traceback"),
    ],
)
def test_what_counts_as_a_clear_answer(answer: Answer, kind: str | None) -> None:
    verdict = unclear(answer)
    assert (verdict.kind if verdict else None) == kind


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scale", "nan"], "expected a number above 0, got nan"),
        (["--minutes", "0"], "expected a number above 0, got 0"),
        (["--jobs", "0"], "expected at least 1, got 0"),
        (["--work", "nowhere"], "nowhere is not a folder"),
        (["--replay", "."], "not the folder of a failing case"),
    ],
)
def test_options_of_the_trial_are_checked(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        TRIAL["main"](words)
    assert said in f"{stopped.value.code} {capsys.readouterr().err}"


def test_what_no_two_runs_share_is_not_compared(tmp_path: Path) -> None:
    for name, seconds, accuracy in (("a", 1, 0.5), ("b", 2, 0.5), ("c", 1, 0.6)):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "record.json").write_text(json.dumps({"seconds": seconds, "accuracy": accuracy}))
    one, same, other = (content_of(tmp_path / name / "run") for name in "abc")
    assert differing(same, one) == []
    assert differing(other, one) == ["run/record.json"]
    (tmp_path / "a" / ".x.json.12.tmp").touch()
    assert leftovers(tmp_path / "a") == [".x.json.12.tmp"]


def test_damage_changes_a_file_and_follows_its_seed() -> None:
    content = json.dumps({"a": [1, 2.5, "x"], "b": {"c": None}}).encode()
    found = [damage(content, "a.json", random.Random(seed), [b"other"]) for seed in range(200)]
    assert content not in found
    assert found == [damage(content, "a.json", random.Random(seed), [b"other"]) for seed in range(200)]
    assert len(set(found)) > 120


def test_a_failing_case_is_counted_and_written_down(tmp_path: Path) -> None:
    def run(case: Case, number: int) -> Verdict:
        (case.folder / "input.txt").write_text("x")
        answer = ask(lambda: print(1 // number), case.folder)
        return unclear(answer) or Verdict("clear")

    failures = tmp_path / "failures"
    runner = Runner(seed=3, toys=tmp_path, work=tmp_path / "work", failures=failures, jobs=2)
    (tmp_path / "work").mkdir()
    runner.run(Trial("toy", 3, run), 3)
    assert runner.failed
    assert "| toy | 3 | 2 | 1 | 0 | 0 |" in runner.table()
    assert list(runner.why()) == ["    1  toy: tracebacks: ZeroDivisionError: integer division or modulo by zero"]
    assert json.loads((failures / "toy-0/case.json").read_text())["number"] == 0
    assert (failures / "toy-0/here/input.txt").exists()


def test_no_case_starts_after_the_time_limit(tmp_path: Path) -> None:
    def run(case: Case, number: int) -> Verdict:
        return Verdict("clear")

    (tmp_path / "work").mkdir()
    runner = Runner(seed=3, toys=tmp_path, work=tmp_path / "work", failures=tmp_path, jobs=2, until=time.monotonic())
    runner.run(Trial("toy", 3, run), 3)
    assert "| toy | 0 | 0 | 0 | 0 | 0 |" in runner.table()
    assert list(runner.unfinished()) == ["toy: 0 of 3 cases tried before the time limit"]
    runner.until = time.monotonic() + 60
    runner.run(Trial("toy", 3, run), 3, first=1)
    assert "| toy | 2 | 2 | 0 | 0 | 0 |" in runner.table()
    assert list(runner.unfinished()) == []


def test_a_process_that_dies_fails_the_cases_it_had_left(tmp_path: Path) -> None:
    def run(case: Case, number: int) -> Verdict:
        if number == 2:
            os.kill(os.getpid(), 9)
        return Verdict("clear")

    runner = Runner(seed=3, toys=tmp_path, work=tmp_path / "work", failures=tmp_path / "failures", jobs=1)
    (tmp_path / "work").mkdir()
    runner.run(Trial("toy", 4, run), 4)
    assert runner.counts["toy"] == {"clear": 2, "traceback": 2}
    assert any("ended" in reason for _, _, reason in runner.reasons)


def test_the_input_of_a_damaged_case_is_kept_only_where_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "toys"
    (folder / "formats").mkdir(parents=True)
    (folder / "formats" / "a.jsonl").write_text('{"text": "x"}\n')
    question = next(one for one in damaging.QUESTIONS if one.name == "dataset")
    verdicts = {}
    for name, status in (("good", 2), ("bad", 1)):
        here = tmp_path / name / "here"
        here.mkdir(parents=True)
        case = Case(name, here, folder, random.Random(5))
        monkeypatch.setattr(damaging, "ask", lambda *_, status=status: Answer(status, "", "erda: no.\n"))
        verdicts[name] = damaging._try(case, question, damaging.Twins(), [b"other"]).kind
    assert verdicts == {"good": "clear", "bad": "traceback"}
    assert not (tmp_path / "good" / "input").exists()
    kept, used = (tmp_path / "bad" / folder / "formats" / "a.jsonl" for folder in ("input", "here"))
    assert kept.read_bytes() == used.read_bytes() != (folder / "formats" / "a.jsonl").read_bytes()
    assert (tmp_path / "bad" / damaging.NOTE).read_text() == "formats/a.jsonl"
