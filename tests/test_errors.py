"""How faults are put together."""

import doctest
from pathlib import Path

import pytest

from erda import errors
from erda.cli.main import main
from erda.errors import ErdaError, memory_faults_explained, merge_faults, printable


def test_the_examples_in_the_docstrings() -> None:
    found = doctest.testmod(errors)
    assert found.attempted >= 2
    assert not found.failed


def test_the_same_lines_in_another_order_are_the_same_fault() -> None:
    faults = ["erda 100: too few\nfor b", "erda 110: for b\ntoo few", "emr 100: too few\nfor c"]
    assert merge_faults(faults) == ["erda 100, erda 110: too few\nfor b", "emr 100: too few\nfor c"]


def test_a_bad_number_of_shots_is_said_once_for_all_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--shots", "5000", "--set", "n_tasks=2", "--seeds", "100,110,120", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "erda: Runs that failed: 3\n  posterior 100, posterior 110, posterior 120: " in said
    assert said.count("relation 'died-in' has 120 training examples; 5000 shots") == 1
    assert not list(tmp_path.iterdir())


def test_what_comes_from_elsewhere_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("a\x1b[2Jb\u202ec\nd\te") == r"a\x1b[2Jb\u202ec" + "\nd\te"
    assert main(["report", "no\x1b[2Jwhere"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "explained"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), True),
        (MemoryError(), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_out_of_memory_is_explained(fault: Exception, explained: bool) -> None:
    with pytest.raises(ErdaError if explained else type(fault)) as caught, memory_faults_explained("Use less."):
        raise fault
    assert str(caught.value).startswith("Use less. (") == explained
