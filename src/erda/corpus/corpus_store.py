"""Read a corpus: find sentences by entity pair, fetch rows, count.

A corpus is a list of Parquet parts, sorted by entity pair, and a lookup (sorted keys and their rows). `corpus.json`
describes it, with the checksums of its files. It never changes.

A row is one sentence with one ordered entity pair; rows are numbered 0 to n - 1. Finding pairs is a binary search in
memory-mapped sorted keys. Fetching is one DuckDB query that reads only the row groups (2,048 rows each) of the
requested rows. So memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from erda.errors import DataError, WriteError
from erda.files import FULL, inside, read_sealed, remove_own, sealed, sha256_of, write_bytes, write_json
from erda.text.keys import EntityPair, lookup_keys
from erda.types import Entity, Example, Span

MANIFEST = "corpus.json"
CHECKSUM = r"[0-9a-f]{16}"
_REMEDY = "Build the corpus again in a new folder."
_FULL_TEXT = ("no space left", "file too large", "quota exceeded", "disk full", "out of disk")
_RETRY = "Finished work is kept; run the same command again."
NO_ROWS = np.empty(0, np.int64)
LOOKUP_TYPES = (np.dtype(np.uint64), np.dtype(np.int64))  # of the sorted keys and of their rows


class CorpusRow(NamedTuple):
    """One sentence with one ordered entity pair. Spans count the tokens of `text`, separated by single spaces."""

    text: str
    head_name: str
    head_id: str | None
    head_start: int
    head_end: int
    tail_name: str
    tail_id: str | None
    tail_start: int
    tail_end: int
    relation: str | None
    source: str | None

    @classmethod
    def of(cls, example: Example) -> CorpusRow:
        """Convert an example; a token that contains spaces becomes several tokens."""
        words: list[str] = []
        places = [0]  # index of the first word of each token, and the end
        for token in example.tokens:
            words += token.split()
            places.append(len(words))
        pair = example.head, example.tail
        head, tail = (replace(one, span=Span(places[one.span.start], places[one.span.end])) for one in pair)
        return cls(" ".join(words), *entity_columns(head), *entity_columns(tail), example.relation, example.source)

    def example(self, example_id: str) -> Example:
        """Return the row as an example."""
        head = Entity(self.head_name, Span(self.head_start, self.head_end), self.head_id)
        tail = Entity(self.tail_name, Span(self.tail_start, self.tail_end), self.tail_id)
        return Example(tuple(self.text.split(" ")), head, tail, self.relation, example_id, self.source)


def entity_columns(entity: Entity) -> tuple[str, str | None, int, int]:
    """Return the columns of an entity, in the order of `CorpusRow`."""
    return entity.name, entity.id, entity.span.start, entity.span.end


_FIELDS = ", ".join(("row", "sentence", *CorpusRow._fields))


@dataclass(frozen=True, slots=True)
class CorpusSentence:
    """A row of a corpus. `key` identifies the sentence, ignoring case, spacing and the entity pair."""

    row: int
    key: int
    example: Example


class CorpusStore:
    """A finished corpus. `open` verifies its files."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._connection: Any = None
        self._keys, self._rows = (np.load(folder / file.path, mmap_mode="r") for file in manifest.lookup)

    @classmethod
    def open(cls, folder: Path) -> CorpusStore:
        """Open the corpus in `folder`."""
        check_folder(folder)
        manifest = read_manifest(folder)
        manifest.verify(folder)
        return cls(folder, manifest)

    def __len__(self) -> int:
        return self.manifest.n_rows

    @property
    def digest(self) -> str:
        """Digest of the rows and their numbers."""
        return self.manifest.digest

    def find(self, pairs: Sequence[EntityPair]) -> list[np.ndarray]:
        """Find the rows of each pair, sorted, by one lookup."""
        keys = [sorted(lookup_keys(pair)) for pair in pairs]
        flat = np.array([key for group in keys for key in group], np.uint64)
        bounds = zip(*(np.searchsorted(self._keys, flat, side) for side in ("left", "right")), strict=True)
        found = iter([self._rows[start:end] for start, end in bounds])
        return [np.unique(np.concatenate([NO_ROWS, *islice(found, len(group))])) for group in keys]

    def sentences_of(self, pairs: Sequence[EntityPair]) -> list[tuple[CorpusSentence, ...]]:
        """Find the sentences of each pair, in the order of `pairs`, by one lookup and one query.

        Entities match by id, or by name or page title, ignoring case and spacing (`erda.text.keys`).
        """
        found = self.find(pairs)
        wanted = np.unique(np.concatenate([NO_ROWS, *found]))
        by_row = {sentence.row: sentence for sentence in self.sentences(wanted)}
        return [tuple(by_row[int(row)] for row in rows) for rows in found]

    def sentences(self, rows: Sequence[int] | np.ndarray) -> list[CorpusSentence]:
        """Fetch the sentences of rows, in the given order."""
        wanted = np.asarray(rows, np.int64)
        if not len(wanted):
            return []
        if wanted.min() < 0 or wanted.max() >= len(self):
            raise DataError(f"{self.folder}: row {int(wanted.max())} requested; rows are 0 to {len(self) - 1}.")
        numbers = ", ".join(map(str, np.unique(wanted).tolist()))
        records = self._query(f"SELECT {_FIELDS} FROM corpus WHERE row IN ({numbers})").fetchall()
        by_row = {sentence.row: sentence for sentence in map(_sentence, records)}
        return [by_row[row] for row in wanted.tolist()]

    def rows(self, rows: Sequence[int] | np.ndarray) -> list[Example]:
        """Fetch the examples of rows, in the given order."""
        return [sentence.example for sentence in self.sentences(rows)]

    def batches(self, *, start: int = 0, stop: int | None = None, size: int = 10_000) -> Iterator[list[CorpusSentence]]:
        """Yield the rows from `start` to `stop` in order, in batches of `size`."""
        stop = len(self) if stop is None else min(stop, len(self))
        for left in range(start, stop, size):
            query = f"SELECT {_FIELDS} FROM corpus WHERE row >= {left} AND row < {min(left + size, stop)} ORDER BY row"
            yield [_sentence(record) for record in self._query(query).fetchall()]

    def counts(self) -> dict[str, int]:
        """Count rows, sentences, documents, entity pairs (also those with two or more sentences) and entities."""
        query = """
            SELECT count(*) AS rows, count(DISTINCT sentence) AS sentences, count(DISTINCT source) AS documents,
            (SELECT count(*) FROM pairs) AS pairs, (SELECT count(*) FROM pairs WHERE n > 1) AS "repeated pairs",
            (SELECT count(DISTINCT entity) FROM (SELECT unnest([head_key, tail_key]) AS entity FROM pairs)) AS entities
            FROM corpus
        """
        pairs = "WITH pairs AS (SELECT head_key, tail_key, count(*) AS n FROM corpus GROUP BY head_key, tail_key)"
        found = self._query(f"{pairs} {query}")
        return dict(zip((column[0] for column in found.description), found.fetchall()[0], strict=True))

    def _query(self, query: str) -> Any:
        with disk_faults(self.folder):
            if self._connection is None:
                files = file_list([self.folder / part.file.path for part in self.manifest.parts])
                self._connection = connect()
                self._connection.execute(f"CREATE VIEW corpus AS SELECT * FROM read_parquet({files})")
                self._connection.execute("SET parquet_metadata_cache = true")
            return self._connection.execute(query)


def _sentence(record: Sequence[Any]) -> CorpusSentence:
    row, key, *columns = record
    return CorpusSentence(row, key, CorpusRow(*columns).example(f"corpus:{row}"))


# -- DuckDB, for data larger than memory ------------------------------------------------------------------------------


def connect(file: Path | None = None, *, memory: str = "1GB", spill: Path | None = None) -> Any:
    """Connect to a DuckDB file, or to a database in memory. Data beyond `memory` spills to the folder `spill`."""
    import duckdb

    settings = {"memory_limit": memory} | ({"temp_directory": str(spill)} if spill else {})
    connection = duckdb.connect(str(file or ":memory:"), config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection


def check_folder(folder: Path) -> None:
    """Raise if the path of a folder is not UTF-8, which DuckDB cannot open."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise DataError(f"{folder}: the name is not valid UTF-8, so DuckDB cannot open it; use another name.") from None


def quoted(value: str | Path) -> str:
    """Quote a string for SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def file_list(paths: Sequence[Path]) -> str:
    """Quote paths as a SQL list, for `read_parquet`."""
    return "[" + ", ".join(quoted(path) for path in paths) + "]"


@contextmanager
def disk_faults(folder: Path) -> Iterator[None]:
    """Raise a full disk, and any other error of DuckDB or Arrow, as an error with a remedy."""
    import duckdb

    try:
        yield
    except (OSError, duckdb.Error) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        if getattr(error, "errno", None) in FULL or any(text in str(error).lower() for text in _FULL_TEXT):
            raise WriteError(f"{folder}: the disk is full ({message}). Free some space. {_RETRY}") from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise DataError(f"{folder}: out of memory ({message}); allow more with --set memory=SIZE.") from None
        raise DataError(f"{folder}: {message}. {_RETRY}") from None


# -- the description of a corpus ---------------------------------------------------------------------------------------


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

    def verify(self, folder: Path) -> None:
        """Raise if a file of the corpus in `folder` is missing or damaged."""
        files = (*(part.file for part in self.parts), *self.lookup)
        if faults := [fault for file in files if (fault := file.fault(folder))]:
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
