"""The files of datasets: whether they are there, whether they are the same, and what they hash to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from erda.data.formats import example_to_json
from erda.errors import DataError
from erda.types import Example, Relation

Stamps = tuple[tuple[str, int, int], ...]


def data_checksum(paths: Iterable[Path], *, relations: Iterable[Relation], examples: Iterable[Example] = ()) -> str:
    """The sha256 over the content of files, in the order given, the relations' texts and examples made another way."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    for relation in relations:
        whole.update(json.dumps([relation.id, relation.name, relation.description]).encode())
    for example in examples:
        whole.update(json.dumps(example_to_json(example), sort_keys=True).encode())
    return whole.hexdigest()


def file_stamps(paths: Iterable[Path]) -> Stamps:
    """Size and time of change of the files that are there: what tells that a file is still the same."""
    there = [(str(path), path.stat()) for path in paths if path.exists()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in there)


def require_files(dataset: str, paths: Iterable[Path]) -> None:
    """Say which files of a dataset are not there, and how to get them."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        listed = "\n".join(f"  {path}" for path in missing)
        raise DataError(
            f"Dataset '{dataset}' is not complete; missing:\n{listed}\n"
            f"Fetch it with 'erda data get {dataset}', or set ERDA_DATA to a folder that has it."
        )
