"""Model folders: found by name and verified; missing, truncated and wrong files are rejected."""

import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import safetensors_bytes, write_folder

from erda.encoders.weights import MODELS, CopyOrigin, Origin, find_model, origin
from erda.errors import ModelError
from erda.files import sealed, write_json


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


def test_a_hub_model_is_verified_like_a_local_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def offline(*args: object, **settings: object) -> str:
        raise FileNotFoundError("no network\nlong story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"'minilmm'. Did you mean 'minilm'\?.*\(no network\).*minilm or mpnet"):
        find_model("minilmm")
    folder = write_folder(tmp_path / "snapshot")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **settings: str(folder))
    assert find_model("someone/some-model").path == folder
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="incomplete"):
        find_model("someone/some-model")
