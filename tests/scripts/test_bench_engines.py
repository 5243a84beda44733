from pathlib import Path

import pytest
from tiny_models import SENTENCES, build_model

import engines


def test_speed_is_printed_beside_its_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engines, "_sentences", lambda: SENTENCES)
    folder = build_model(tmp_path / "model").path
    assert engines.main(["speed", "--encoder", str(folder), "--adapter", ""]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] in ("met", "MET") for line in lines] == [False] * 3 + [True] + [False] * 4


def test_an_unknown_measurement_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        engines.main(["memory"])
    assert "there are accuracy, speed" in capsys.readouterr().err
