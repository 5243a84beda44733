"""What a corpus folder says of itself (`corpus.json`), and whether its files are still what they were.

A corpus is a row of segments: the first build makes one, each `--add` another. A segment is a row of Parquet parts,
sorted by entity pair, and a lookup (sorted keys and their rows). Rows are numbered through: what is added later never
changes the number of an earlier row, so a vector index of the earlier rows stays good.
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
_REMEDY = "Build the corpus again in a new folder."


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a corpus, its path relative to the folder, with what it must be."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, folder: Path, path: Path) -> StoredFile:
        """A file as it is now, and must be from now on."""
        return cls(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_of(path))


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


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A file that was read into a segment: what it gave and what was dropped, by reason, with the first places."""

    path: str
    sha256: str
    n_rows: int
    read: int
    dropped: dict[str, int]
    places: dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that the rows of a segment depend on, the earlier segments apart; files by their sha256."""

    sources: tuple[str, ...]
    limits: Limits
    excluded: str
    format: str | None = None
    names: str | None = None
    spacy: str | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """What one build or one `--add` put in. `digest` covers the content and the numbers of its rows."""

    name: str
    start: int
    n_rows: int
    digest: str
    plan: Plan
    sources: tuple[SourceRecord, ...]
    duplicates: int
    parts: tuple[Part, ...]
    lookup: tuple[StoredFile, StoredFile]  # sorted keys, their rows

    def files(self) -> Iterator[StoredFile]:
        """Every file of the segment."""
        yield from (part.file for part in self.parts)
        yield from self.lookup

    @property
    def dropped(self) -> Counter[str]:
        """Everything that did not enter, by reason."""
        counts = Counter({"duplicate (same sentence, same pair)": self.duplicates} if self.duplicates else {})
        for source in self.sources:
            counts.update(source.dropped)
        return counts


class Version(NamedTuple):
    """A corpus as it was after one of its builds."""

    n_rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All segments of a corpus, and the keys of the sentences that must never enter it."""

    segments: tuple[Segment, ...] = ()
    excluded: StoredFile | None = None
    excluded_from: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(segment.n_rows for segment in self.segments)

    @property
    def digest(self) -> str:
        """Of the content of all rows, in order: changes with every change of the corpus."""
        return digest_of(segment.digest for segment in self.segments)

    @property
    def versions(self) -> tuple[Version, ...]:
        """The corpus after the first build and after each `--add`; the last is the corpus as it is.

        An index made of an earlier version covers the first rows of the corpus and can be added to.
        """
        grown = [Manifest(self.segments[: n + 1]) for n in range(len(self.segments))]
        return tuple(Version(manifest.n_rows, manifest.digest) for manifest in grown)

    @property
    def dropped(self) -> dict[str, int]:
        """Everything that did not enter, by reason, the commonest first."""
        counts = sum((segment.dropped for segment in self.segments), Counter())
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def parts(self) -> list[Part]:
        """The parts of all segments, in the order of their rows."""
        return [part for segment in self.segments for part in segment.parts]

    def part_paths(self, folder: Path) -> list[Path]:
        """The files of all parts."""
        return [folder / part.file.path for part in self.parts()]

    def files(self) -> Iterator[StoredFile]:
        """Every file of the corpus."""
        for segment in self.segments:
            yield from segment.files()
        if self.excluded:
            yield self.excluded


@dataclass(frozen=True, slots=True)
class _Format:
    format: int


@dataclass(frozen=True, slots=True)
class _Computed:
    """What `corpus.json` says besides the manifest, and can be computed of it."""

    digest: str
    n_rows: int


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus folder; one whose values do not fit each other is refused."""
    path = folder / MANIFEST
    if not path.exists():
        if (folder / "build").is_dir():
            raise DataError(f"{folder}: its build was not finished; run the same 'erda corpus build' again.")
        raise DataError(f"{folder}: no corpus here; make one: erda corpus build SOURCE --out {folder}")
    if read_json(path, _Format, remedy=_REMEDY).format != FORMAT:
        raise DataError(f"{path}: not a corpus of format {FORMAT}; build it again with this version of erda.")
    manifest = read_sealed(path, Manifest, remedy=_REMEDY)
    wrong = next(_misfits(manifest, read_json(path, _Computed, remedy=_REMEDY)), None)
    if wrong:
        raise DataError(f"{path}: {wrong} does not fit the rest; it was changed by hand or is damaged. {_REMEDY}")
    for file in manifest.files():
        inside(folder, file.path)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `corpus.json` in one step: it is either the old or the new one."""
    value = {"format": FORMAT, "digest": manifest.digest, "n_rows": manifest.n_rows, **asdict(manifest)}
    write_json(folder / MANIFEST, sealed(value))


def _misfits(manifest: Manifest, computed: _Computed) -> Iterator[str]:
    """The fields that contradict others."""
    if not manifest.segments:
        yield "'segments' is empty, which"
    row = 0
    for number, segment in enumerate(manifest.segments):
        place = f"segments[{number}]"
        if segment.start != row or not segment.parts:
            yield f"{place}.start"
        for at, part in enumerate(segment.parts):
            if part.start != row or part.n_rows < 0:
                yield f"{place}.parts[{at}].start"
            row += part.n_rows
        if segment.n_rows != row - segment.start:
            yield f"{place}.n_rows"
        if segment.digest != digest_of(part.content for part in segment.parts):
            yield f"{place}.digest"
    if (computed.n_rows, computed.digest) != (manifest.n_rows, manifest.digest):
        yield "digest"


def digest_of(digests: Iterable[str]) -> str:
    """One digest of several, in order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def fault_of(folder: Path, file: StoredFile) -> str | None:
    """What is wrong with a stored file, None where nothing is."""
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
    """What is wrong with files of a folder; one with the size and time of its last good check is not read again.

    What was found good is noted in `checked.json`; where that cannot be written, files are checked each time.
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
