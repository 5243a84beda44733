"""What a corpus folder says of itself (`corpus.json`), and whether its files are still what they were.

A corpus is a row of segments: the first build makes one, each `--add` another. A segment is a row of Parquet parts,
sorted by entity pair, and a lookup (sorted keys and their rows). Rows are numbered through: what is added later never
changes the number of an earlier row, so a vector index of the earlier rows stays good.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from erda.errors import DataError

MANIFEST = "corpus.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a corpus, its path relative to the folder, with what it must be."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """Rows `start` to `start + n_rows`: those whose head key is at least `low` and below `high` (None: no border).

    `content` is a digest of the rows themselves, whatever wrote the file.
    """

    file: StoredFile
    start: int
    n_rows: int
    low: str | None
    high: str | None
    content: str

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Part:
        """The part that `asdict` wrote."""
        return cls(**{**value, "file": StoredFile(**value["file"])})


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A file that was read into a segment: what it gave and what was dropped, by reason, with the first places."""

    path: str
    sha256: str
    n_rows: int
    read: int
    dropped: dict[str, int]
    places: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Segment:
    """What one build or one `--add` put in. `digest` covers the content and the numbers of its rows."""

    name: str
    start: int
    n_rows: int
    digest: str
    plan: dict[str, Any]
    sources: tuple[SourceRecord, ...]
    duplicates: int
    parts: tuple[Part, ...]
    lookup: tuple[StoredFile, StoredFile]  # sorted keys, their rows

    def files(self) -> Iterator[StoredFile]:
        """Every file of the segment."""
        yield from (part.file for part in self.parts)
        yield from self.lookup


@dataclass(frozen=True, slots=True)
class Manifest:
    """All segments of a corpus, and the keys of the sentences that must never enter it."""

    segments: tuple[Segment, ...]
    excluded: StoredFile | None = None
    excluded_from: tuple[str, ...] = field(default=())

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(segment.n_rows for segment in self.segments)

    @property
    def digest(self) -> str:
        """Of the content of all rows, in order: changes with every change of the corpus."""
        return hashlib.sha256("\n".join(segment.digest for segment in self.segments).encode()).hexdigest()

    @property
    def dropped(self) -> dict[str, int]:
        """Everything that did not enter, by reason, the commonest first."""
        counts: dict[str, int] = {}
        for segment in self.segments:
            for source in segment.sources:
                for reason, n in source.dropped.items():
                    counts[reason] = counts.get(reason, 0) + n
            if segment.duplicates:
                reason = "duplicate (same sentence, same pair)"
                counts[reason] = counts.get(reason, 0) + segment.duplicates
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def files(self) -> Iterator[StoredFile]:
        """Every file of the corpus."""
        for segment in self.segments:
            yield from segment.files()
        if self.excluded:
            yield self.excluded


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus folder."""
    path = folder / MANIFEST
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / "build").is_dir():
            raise DataError(f"{folder}: its build was not finished; run the same 'erda corpus build' again.") from None
        raise DataError(f"{folder}: no corpus here; make one: erda corpus build SOURCE --out {folder}") from None
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: damaged ({error}); build the corpus again in a new folder.") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DataError(f"{path}: not a corpus of format {FORMAT}; build it again with this version of erda.")
    segments = [
        Segment(
            **{
                **segment,
                "sources": tuple(SourceRecord(**source) for source in segment["sources"]),
                "parts": tuple(Part.from_json(part) for part in segment["parts"]),
                "lookup": tuple(StoredFile(**file) for file in segment["lookup"]),
            }
        )
        for segment in value["segments"]
    ]
    excluded = StoredFile(**value["excluded"]) if value["excluded"] else None
    return Manifest(tuple(segments), excluded, tuple(value["excluded_from"]))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `corpus.json` in one step: it is either the old or the new one."""
    value = {"format": FORMAT, "digest": manifest.digest, "n_rows": manifest.n_rows, **asdict(manifest)}
    write_json(folder / MANIFEST, value)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file under a temporary name, then move it into place."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    settle(temporary, path)


def settle(temporary: Path, path: Path) -> None:
    """Make sure that a finished file is on the disk, then give it its name."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def store_file(folder: Path, temporary: Path, path: Path) -> StoredFile:
    """Settle a file of the corpus and note what it must be from now on."""
    digest, size = sha256_of(temporary), temporary.stat().st_size
    settle(temporary, path)
    return StoredFile(path.relative_to(folder).as_posix(), size, digest)


def fault_of(folder: Path, file: StoredFile) -> str | None:
    """What is wrong with a stored file, None where nothing is."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{path}: {size} bytes; expected {file.size}"
        if sha256_of(path) != file.sha256:
            return f"{path}: its bytes have changed (sha256)"
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return None
