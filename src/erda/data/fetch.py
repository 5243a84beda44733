"""Dataset downloads: each file goes to a temporary name, is checked by git blob id, then moves into place."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

from erda.data.catalogue import GITHUB, RemoteFile, find_entry, missing_files
from erda.data.dataset import require_files
from erda.data.fewrel_dataset import VALIDATION_FILE, write_validation
from erda.errors import DataError
from erda.files import data_folder, first_line, whole_file

TIMEOUT_S = 30


def get_dataset(
    name: str, *, folder: Path | None = None, mirror: str = GITHUB, say: Callable[[str], None] = lambda line: None
) -> Path:
    """Fetch the missing files of a dataset and return the data folder. Complete files are left alone.

    `say` receives a line for each file. An interrupted fetch leaves only complete files; run it again to continue.
    """
    entry, folder = find_entry(name), folder or data_folder()
    if not entry.needs:
        say(f"{name}: embedded in erda; there is nothing to fetch.")
        return folder
    missing = missing_files(entry, folder)
    if not entry.remote:
        require_files(name, (folder / file for file in missing), obtain=entry.obtain)
    targets = [(file, folder / file.target) for file in entry.remote]
    wanted = [file for file, path in targets if (git_blob_id(path) != file.blob if path.is_file() else missing)]
    for position, file in enumerate(wanted):
        say(f"{file.url(mirror)} -> {folder / file.target}")
        try:
            _fetch(file, folder / file.target, mirror)
        except _UnreachableError as error:
            left = [
                f"  {one.url(mirror)}\n    -> {folder / one.target}  (git blob id {one.blob})"
                for one in wanted[position:]
            ]
            kept = "Files fetched so far are kept. On a machine with network access, fetch these and copy them here:"
            raise DataError("\n".join([f"Cannot fetch {error}", kept, *left])) from None
    if wanted and name == "fewrel" and not (folder / "fewrel" / VALIDATION_FILE).is_file():
        say(f"drawing validation examples -> {folder / 'fewrel' / VALIDATION_FILE}")
        write_validation(folder / "fewrel")
    say(f"{name}: complete ({folder}).")
    return folder


def git_blob_id(path: Path) -> str:
    """Return git's id of a file's content: the sha1 of 'blob <size>', a zero byte and the content."""
    start = f"blob {path.stat().st_size}\0".encode()
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(start, usedforsecurity=False)).hexdigest()


class _UnreachableError(Exception):
    """The server did not return the file."""


def _fetch(file: RemoteFile, target: Path, mirror: str) -> None:
    import pooch
    import requests

    url = file.url(mirror)
    download = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16, timeout=TIMEOUT_S)
    with whole_file(target) as part:
        try:
            download(url, str(part), None)
        except requests.RequestException as error:
            reason = "no connection" if isinstance(error, requests.ConnectionError) else first_line(error)
            raise _UnreachableError(f"{url}: {reason}.") from None
        if (got := git_blob_id(part)) != file.blob:
            raise DataError(
                f"{url}: the content has git blob id {got}, expected {file.blob}; the file was discarded. "
                "Try again, or fetch it another way."
            )
