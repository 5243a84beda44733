"""What reaches the terminal: nothing that steers it, help that ends with examples, and what to install."""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import erda
from erda.cli.main import GROUPS, build_parser, main
from erda.cli.printing import PrintableOutput, print_line
from erda.errors import printable, unknown_name

CLOSED = "erda: Standard output is closed; redirect it to a file or to /dev/null."
HOSTILE = "a\x1b]0;owned\x07b\x9b2Jc\u202ed\ud800e\x00"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def test_faults_and_output_carry_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printable(HOSTILE) == r"a\x1b]0;owned\x07b\x9b2Jc\u202ed\ud800e\x00"
    assert printable("Zoë\t naïve 東京\n") == "Zoë\t naïve 東京\n"
    assert main(["run", "--out", "x", "--dataset", "a\x1b[2Jb"]) == 2
    assert r"Unknown dataset 'a\x1b[2Jb'" in capsys.readouterr().err
    monkeypatch.setattr("erda.cli.data_commands.LISTS", {"methods": lambda: iter([(HOSTILE, "about", [])])})
    assert main(["list", "methods"]) == 0
    assert capsys.readouterr().out.startswith(printable(HOSTILE))


def test_a_line_break_in_a_name_cannot_begin_a_new_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = "founded by\nerda: all is well\x1b[32m"
    with redirect_stdout(PrintableOutput(sys.stdout)):
        print_line(f"    1  {forged}")
        print("\x1b[31mred")
    first, second = capsys.readouterr().out.splitlines()
    assert first == r"    1  founded by\nerda: all is well\x1b[32m"
    assert second == r"\x1b[31mred"
    assert "\n" not in unknown_name("relation", forged, [forged])
    monkeypatch.chdir(tmp_path)
    assert main(["data", "convert", "a\nerda: all is well"]) == 2
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("erda: ")] == ["erda: a"]


def test_every_printed_line_is_escaped() -> None:
    """`print` and the names of progress bars get `one_line(...)` or a constant; commands print with `print_line`."""
    source = Path(erda.__file__).parent
    scripts = {source / "app/export.py", source / "app/standalone.py"}  # texts of files that `export` writes
    found = []
    for path in sorted({*source.rglob("*.py")} - scripts - {source / "cli/printing.py"}):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            shown = node.args[:1] if node.func.id == "print" else []
            shown += [one.value for one in node.keywords if node.func.id == "tqdm" and one.arg == "desc"]
            for said in map(ast.unparse, shown):
                if not said.startswith(("one_line(", "'", "getattr(error, 'traceback'")):
                    found.append(f"{path.relative_to(source)}:{node.lineno}: {said}")
    assert found == []


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_closed_output_is_a_fault_and_nothing_is_written_elsewhere(closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m erda list presets {closed}"
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.splitlines() == ([] if "2>" in closed else [CLOSED])


def test_the_parser_of_one_command_is_that_of_the_whole_command_line() -> None:
    whole = {parser.prog: parser.format_help() for parser in parsers(build_parser())}
    for modules in GROUPS.values():
        for names in modules.values():
            for name in names:
                own = {
                    parser.prog: parser.format_help() for parser in parsers(build_parser(name)) if parser.prog != "erda"
                }
                assert own[f"erda {name}"] == whole[f"erda {name}"]
                assert {prog.split()[1] for prog in own} == {*names}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_behind_the_output_is_said() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "erda", "list", "datasets"]
        answer = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (answer.returncode, answer.stderr.splitlines()) == (2, ["erda: [Errno 28] No space left on device"])
