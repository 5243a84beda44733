"""The description of a corpus, `corpus.json`, and the integrity check of its files.

A corpus is a list of segments: the first build makes one, each `--add` another. A segment is a list of Parquet parts,
sorted by entity pair, and a lookup (sorted keys and their rows). Adding a segment never changes the number of an
earlier row, so vectors of earlier rows stay valid.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from erda.corpus.sources import Limits
from erda.errors import DataError, ErdaError, WriteError
from erda.files import inside, read_json, read_sealed, sealed, sha256_of, write_json

MANIFEST = "corpus.json"
CHECKED = "checked.json"
FORMAT = 1
DAMAGED = "The corpus is damaged; build it again in a new folder."
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


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A Parquet file with the rows `start` to `start + n_rows`; `content` is a digest of the rows."""

    file: StoredFile
    start: int
    n_rows: int
    content: str


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source of a segment: its rows, and the dropped rows by reason, with the first places."""

    path: str
    sha256: str
    n_rows: int
    read: int
    dropped: dict[str, int]
    places: dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that determines the rows of a segment, apart from earlier segments; files by their sha256."""

    sources: tuple[str, ...]
    limits: Limits
    excluded: str
    format: str | None = None
    names: str | None = None
    spacy: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one build or one `--add`. `digest` covers their content and numbers."""

    name: str
    start: int
    n_rows: int
    digest: str
    plan: Plan
    sources: tuple[SourceRecord, ...]
    duplicates: int
    parts: tuple[CorpusPart, ...]
    lookup: tuple[StoredFile, StoredFile]  # sorted keys, their rows

    @property
    def dropped(self) -> Counter[str]:
        """Number of dropped rows by reason."""
        counts = Counter({"duplicate (same sentence, same pair)": self.duplicates} if self.duplicates else {})
        for source in self.sources:
            counts.update(source.dropped)
        return counts


class CorpusVersion(NamedTuple):
    """The state of a corpus after one of its builds."""

    n_rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All segments of a corpus, and the file of its excluded sentences."""

    segments: tuple[Segment, ...] = ()
    excluded: StoredFile | None = None
    excluded_from: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(segment.n_rows for segment in self.segments)

    @property
    def digest(self) -> str:
        """Digest of all rows, in order."""
        return digest_of(segment.digest for segment in self.segments)

    @property
    def versions(self) -> tuple[CorpusVersion, ...]:
        """The corpus after the first build and after each `--add`; the last version is the current one.

        An index of an earlier version covers the first rows of the corpus and can be extended.
        """
        grown = [Manifest(self.segments[: n + 1]) for n in range(len(self.segments))]
        return tuple(CorpusVersion(manifest.n_rows, manifest.digest) for manifest in grown)

    @property
    def dropped(self) -> dict[str, int]:
        """Number of dropped rows by reason, the most common first."""
        counts = sum((segment.dropped for segment in self.segments), Counter())
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def segment_names(self) -> set[str]:
        """Names of the segments' folders."""
        return {segment.name for segment in self.segments}

    def parts(self) -> list[CorpusPart]:
        """The parts of all segments, in the order of their rows."""
        return [part for segment in self.segments for part in segment.parts]

    def part_paths(self, folder: Path) -> list[Path]:
        """The files of all parts."""
        return [folder / part.file.path for part in self.parts()]

    def files(self) -> Iterator[StoredFile]:
        """Every file of the corpus."""
        for segment in self.segments:
            yield from (part.file for part in segment.parts)
            yield from segment.lookup
        if self.excluded:
            yield self.excluded


@dataclass(frozen=True, slots=True)
class _Format:
    format: int
    seal: str


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a corpus folder; reject a damaged one, or paths outside of the folder."""
    path = folder / MANIFEST
    if not path.exists():
        if (folder / "build").is_dir():
            raise DataError(f"{folder}: its build is not finished; run the same 'erda corpus build' again.")
        raise DataError(f"{folder}: no corpus here; build one: erda corpus build SOURCE --out {folder}")
    if read_json(path, _Format, remedy=_REMEDY).format != FORMAT:
        raise DataError(f"{path}: not a corpus of format {FORMAT}; build it again with this version of erda.")
    manifest = read_sealed(path, Manifest, remedy=_REMEDY)
    for file in manifest.files():
        inside(folder, file.path)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `corpus.json` atomically."""
    value = {"format": FORMAT, "digest": manifest.digest, "n_rows": manifest.n_rows, **asdict(manifest)}
    write_json(folder / MANIFEST, sealed(value))


def digest_of(digests: Iterable[str]) -> str:
    """Combine digests, in order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def fault_of(folder: Path, file: StoredFile) -> str | None:
    """Describe the fault of a stored file; None if it is intact."""
    path = inside(folder, file.path)
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{path}: {size} bytes; expected {file.size}"
        if sha256_of(path) != file.sha256:
            return f"{path}: its bytes have changed (sha256)"
    except FileNotFoundError:
        return f"{path}: missing"
    except (OSError, DataError) as error:
        return f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
    return None


def faults_of(folder: Path, files: Iterable[StoredFile]) -> list[str]:
    """Check files of a folder; skip a file with the size and modification time of its last successful check.

    `checked.json` records successful checks. On a read-only disk every call checks all files.
    """
    checked: dict[str, tuple[str, int, int]] = {}
    with suppress(ErdaError):
        checked = read_json(folder / CHECKED, dict[str, tuple[str, int, int]])
    faults: list[str] = []
    good: dict[str, tuple[str, int, int]] = {}
    for file in files:
        with suppress(OSError):
            stat = (folder / file.path).stat()
            good[file.path] = (file.sha256, stat.st_size, stat.st_mtime_ns)
        if file.path in good and good[file.path] == checked.get(file.path) and stat.st_size == file.size:
            continue
        if fault := fault_of(folder, file):
            faults.append(fault)
            good.pop(file.path, None)
    if good != checked:
        with suppress(WriteError):
            write_json(folder / CHECKED, good)
    return faults
