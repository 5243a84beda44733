import json
import shutil
from pathlib import Path

import pytest
from toy_runs import toy_record

from erda.benchmark.records import RECORD
from same_records import main


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Path, Path]:
    toy_record(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    return tmp_path / "old", tmp_path / "new"


def change(folder: Path, **values: object) -> None:
    (path,) = folder.rglob(RECORD)
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_seconds_memory_and_versions_may_differ(twins: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    change(twins[1], seconds={"learn": [9.0], "predict": [9.0]}, peak_memory_mb=1.0, versions={"erda": "9"})
    assert main([str(twins[0]), str(twins[1])]) == 0
    assert "1 records compared: no difference" in capsys.readouterr().out


def test_every_difference_is_printed_with_its_path(
    twins: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = twins[1].rglob(RECORD)
    accuracy = json.loads(path.read_text())["accuracy"]
    accuracy["all-seen"][0] += 0.01
    change(twins[1], accuracy=accuracy)
    change(twins[1], packed={"gold": "other"})
    assert main([str(twins[0]), str(twins[1])]) == 1
    printed = capsys.readouterr().out
    place = path.parent.relative_to(twins[1])
    assert f"{place}/{RECORD}: accuracy.all-seen[0]: " in printed
    assert f"{place}/{RECORD}: packed.gold: " in printed
    shutil.rmtree(path.parent)
    assert main([str(twins[0]), str(twins[1])]) == 1
    assert f"{place}: only in {twins[0]}" in capsys.readouterr().out
