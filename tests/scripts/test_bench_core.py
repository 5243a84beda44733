"""Core figures and their targets."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import core


def test_a_stream_of_posterior_is_timed_three_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str]] = []

    def run(out: Path, *, methods: str, settings: dict[str, Any], **rest: Any) -> tuple[SimpleNamespace]:
        asked.append((methods, settings["cache_dir"]))
        return (SimpleNamespace(total_seconds=20.0 * len(asked)),)

    monkeypatch.setattr(core, "_run", run)
    assert core.main(["posterior", "--tasks", "1", "--out", str(tmp_path)]) == 0
    cache = str(tmp_path / "posterior-1" / "cache")
    assert asked == [("posterior", cache), ("posterior", cache), ("posterior-tuned", cache)]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-4:] for line in lines] == [
        ["s", "<=", "180", "met"],
        ["<=", "15", "NOT", "MET"],
        ["s", "<=", "900", "met"],
    ]
