"""The command line of an extractor over a toy encoder."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import Erda
from toy_extractor import Words

from erda.app.extractor import Extractor
from erda.cli.main import main


@pytest.fixture
def erda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Erda:
    """Runs a command in an empty folder, over an encoder that needs no weights and without a tagger."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("erda.app.entities.model_folder", lambda: None)
    monkeypatch.setattr("erda.app.entities.installed_pipeline", lambda: None)
    monkeypatch.delenv("ERDA_STORE", raising=False)
    opened = Extractor.open
    monkeypatch.setattr(Extractor, "open", lambda folder, **asked: opened(folder, **{**asked, "encoder": Words()}))

    def run(*words: str, stdin: str = "") -> SimpleNamespace:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = main(words)
        said = capsys.readouterr()
        return SimpleNamespace(status=status, out=said.out, err=said.err, lines=said.out.splitlines())

    return run
