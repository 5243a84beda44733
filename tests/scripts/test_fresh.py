"""The table of fresh streams: accuracy over all streams, and a lead with an interval over relations."""

from pathlib import Path

import pytest

import fresh
from erda.benchmark.records import read_record
from erda.cli.main import main as erda


def test_lines_of_two_folders_are_compared_on_their_common_streams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["run", "--preset", "demo", "--method", "posterior", "--encoder", "bilstm", "--set", "n_tasks=2"]
    common += ["--set", "first_shots=3", "--set", "test_per_relation=4", "--set", "encoder.hidden_size=8"]
    assert erda([*common, "--seeds", "1,2", "--out", str(tmp_path / "a")]) == 0
    assert erda([*common, "--seeds", "2", "--set", "name_weight=0", "--out", str(tmp_path / "b")]) == 0
    capsys.readouterr()
    assert fresh.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| posterior")]
    mean = sum(read_record(tmp_path / "a/posterior" / seed).accuracy["all-seen"][-1] for seed in "12") / 2
    ours = next(line for line in lines if line.startswith("| posterior | 2"))
    assert f"| {100 * mean:.2f} |" in ours
    assert ours.endswith("| reference |")
    other = next(line for line in lines if line.startswith("| posterior, b | 1"))
    both = [read_record(tmp_path / one / "posterior/2").accuracy["all-seen"][-1] for one in "ab"]
    assert f"| {100 * (both[0] - both[1]):+.2f} (" in other
    assert fresh.main([str(tmp_path / "b"), "--reference", "cpl"]) == 2
