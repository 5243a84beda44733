"""The description of a corpus, `corpus.json`, and the checksums of its files.

A corpus is a list of Parquet parts, sorted by entity pair, and a lookup (sorted keys and their rows). It never changes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from erda.errors import DataError
from erda.files import inside, read_sealed, remove_own, sealed, sha256_of, write_bytes, write_json

MANIFEST = "corpus.json"
CHECKSUM = r"[0-9a-f]{16}"
_REMEDY = "Build the corpus again in a new folder."


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a corpus: its path relative to the folder, its size and its sha256."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, folder: Path, path: Path) -> StoredFile:
        """Describe a file in its current state."""
        return cls(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_of(path))

    def fault(self, folder: Path) -> str:
        """Describe the damage of the file; empty if it is intact."""
        path = inside(folder, self.path)
        try:
            if path.stat().st_size == self.size and sha256_of(path) == self.sha256:
                return ""
            return f"{path}: its content has changed (sha256)."
        except (OSError, DataError) as error:
            return f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})."


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A Parquet file of consecutive rows; `content` is a digest of the rows."""

    file: StoredFile
    n_rows: int
    content: str


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source: its rows, and the dropped rows by reason, with the first places."""

    path: str
    sha256: str
    n_rows: int
    read: int
    dropped: dict[str, int]
    places: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that determines the rows: sources by sha256, digest of the excluded sentences, settings."""

    sources: tuple[str, ...]
    excluded: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `corpus.json`. `excluded_from` are the names of the files of excluded sentences."""

    plan: Plan
    sources: tuple[SourceRecord, ...]
    duplicates: int
    parts: tuple[CorpusPart, ...]
    lookup: tuple[StoredFile, StoredFile]  # sorted keys, their rows
    excluded_from: tuple[str, ...] = ()
    format: Literal[2] = 2

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(part.n_rows for part in self.parts)

    @property
    def digest(self) -> str:
        """Digest of all rows and their numbers."""
        rows = hashlib.sha256("\n".join(part.content for part in self.parts).encode()).hexdigest()
        return hashlib.sha256(rows.encode()).hexdigest()

    @property
    def dropped(self) -> dict[str, int]:
        """Number of dropped rows by reason, the most common first."""
        counts = Counter({"duplicate (same sentence, same pair)": self.duplicates} if self.duplicates else {})
        for source in self.sources:
            counts.update(source.dropped)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """Every file of the corpus."""
        return (*(part.file for part in self.parts), *self.lookup)

    def verify(self, folder: Path) -> None:
        """Raise if a file of the corpus in `folder` is missing or damaged."""
        if faults := [fault for file in self.files if (fault := file.fault(folder))]:
            raise DataError("\n".join((*faults, f"The corpus is damaged. {_REMEDY}")))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a corpus folder; reject a damaged one."""
    path = folder / MANIFEST
    if not path.exists():
        if (folder / "build").is_dir():
            raise DataError(f"{folder}: its build is not finished; run the same 'erda corpus build' again.")
        raise DataError(f"{folder}: no corpus here; build one: erda corpus build SOURCE --out {folder}")
    return read_sealed(path, Manifest, remedy=_REMEDY)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `corpus.json` atomically."""
    value = {"digest": manifest.digest, "n_rows": manifest.n_rows, **asdict(manifest)}
    write_json(folder / MANIFEST, sealed(value))


# -- files with their checksum in their name ---------------------------------------------------------------------------


def write_checked(folder: Path, stem: str, ending: str, content: bytes) -> Path:
    """Write a file atomically, with a checksum in its name: a file that exists and fits its name is complete.

    Damaged files of the same stem are removed.
    """
    for damaged in folder.glob(f"{stem}.*{ending}"):
        remove_own(damaged)
    path = folder / f"{stem}.{hashlib.sha256(content).hexdigest()[:16]}{ending}"
    write_bytes(path, content)
    return path


def find_checked(folder: Path, stem: str, ending: str) -> Path | None:
    """Find the intact file that `write_checked` wrote; None if it is missing or damaged."""
    return next((path for path in folder.glob(f"{stem}.*{ending}") if is_intact(path)), None)


def is_intact(path: Path) -> bool:
    """Whether a file fits the checksum in its name."""
    return path.name.split(".")[-2] == sha256_of(path)[:16]
