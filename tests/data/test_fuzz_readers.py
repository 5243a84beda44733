"""Every reader, given a mutated file, returns a value or raises an `ErdaError` (long: `benchmarks/fuzz_readers.py`)."""

import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from fuzz_readers import attempt, mutated
from fuzz_targets import TARGETS, Target

READERS = [target for target in TARGETS if target.name != "settings"]  # imports every method
SHORT = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
@SHORT
@given(rng=st.randoms(use_true_random=False))
def test_a_mutated_file_is_read_or_rejected(tmp_path: Path, target: Target, rng: random.Random) -> None:
    assert attempt(target, mutated(target.content, rng), tmp_path) in ("read", "rejected")


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
@SHORT
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read_or_rejected(tmp_path: Path, target: Target, content: bytes) -> None:
    assert attempt(target, content, tmp_path) in ("read", "rejected")


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
def test_the_file_that_mutations_begin_with_is_valid(tmp_path: Path, target: Target) -> None:
    assert attempt(target, target.content, tmp_path) == ("rejected" if target.name == "answers" else "read")


def test_a_traceback_and_an_unreadable_copy_are_findings(tmp_path: Path) -> None:
    broken = Target("broken", "x", b"", lambda path: 1 / 0)
    assert attempt(broken, b"", tmp_path).startswith("traceback: ZeroDivisionError")
