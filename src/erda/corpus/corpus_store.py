"""Read a corpus: find sentences by entity pair, fetch rows, search text.

A row is one sentence with one ordered entity pair. Rows are numbered 0 to n - 1; numbers never change. Finding pairs
reads a few pages of sorted keys (`lookup.py`). Fetching is one DuckDB query that reads only the row groups (2,048 rows
each) of the requested rows, so memory does not grow with the corpus.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from erda.corpus.lookup import PairLookup
from erda.corpus.manifest import DAMAGED, CorpusPart, CorpusVersion, Manifest, faults_of, read_manifest
from erda.corpus.sql import check_folder, connect, disk_faults, file_list
from erda.errors import DataError
from erda.text.keys import EntityPair, lookup_keys, plain
from erda.text.sentences import tokens_of
from erda.types import Entity, Example, Span

_FIELDS = (
    "row, sentence, text, head_name, head_start, head_end, head_id, tail_name, tail_start, tail_end, tail_id, "
    "relation, source"
)


@dataclass(frozen=True, slots=True)
class CorpusSentence:
    """A row of a corpus. `key` identifies the sentence, ignoring case, spacing and the entity pair."""

    row: int
    key: int
    example: Example


class SearchHits(NamedTuple):
    """Number of matching rows, and the first of them."""

    n_rows: int
    sentences: list[CorpusSentence]


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts over all rows. `repeated_pairs` are the entity pairs with two or more sentences."""

    n_rows: int
    n_sentences: int
    n_pairs: int
    repeated_pairs: int
    rows_of_repeated: int
    n_entities: int
    n_documents: int
    length_mean: float
    length_median: float
    length_p95: float
    length_max: int
    sources: tuple[tuple[str, int], ...]
    dropped: dict[str, int]
    excluded_from: tuple[str, ...]
    digest: str


class CorpusStore:
    """A finished corpus. `open` verifies the files that changed since the last check."""

    def __init__(self, folder: Path, manifest: Manifest, *, n_threads: int | None = None) -> None:
        self.folder = folder
        self.manifest = manifest
        self._n_threads = n_threads
        self._connection: Any = None
        self._parts = [part for part in manifest.parts() if part.n_rows]
        self._starts = [part.start for part in self._parts]
        segments = [segment for segment in manifest.segments if segment.n_rows]
        self._lookups = [PairLookup(*(folder / file.path for file in segment.lookup)) for segment in segments]

    @classmethod
    def open(cls, folder: Path, *, n_threads: int | None = None) -> CorpusStore:
        """Open the corpus in `folder`; `n_threads` limits the threads of its queries."""
        check_folder(folder)
        manifest = read_manifest(folder)
        faults = faults_of(folder, manifest.files())
        if faults:
            raise DataError("\n".join(f"{fault}." for fault in faults) + f"\n{DAMAGED}")
        return cls(folder, manifest, n_threads=n_threads)

    def __len__(self) -> int:
        return self.manifest.n_rows

    @property
    def digest(self) -> str:
        """Digest of the rows and their numbers."""
        return self.manifest.digest

    @property
    def versions(self) -> tuple[CorpusVersion, ...]:
        """The corpus after the first build and after each `--add` (`Manifest.versions`)."""
        return self.manifest.versions

    def find(self, pairs: Sequence[EntityPair]) -> list[np.ndarray]:
        """Find the rows of each pair, sorted, by one lookup."""
        keys = [sorted(lookup_keys(pair)) for pair in pairs]
        flat = np.array([key for group in keys for key in group], np.uint64)
        found = [lookup.find(flat) for lookup in self._lookups]
        results, at = [], 0
        for group in keys:
            pieces = [rows for per_segment in found for rows in per_segment[at : at + len(group)]]
            results.append(np.unique(np.concatenate(pieces)) if pieces else np.empty(0, np.int64))
            at += len(group)
        return results

    def sentences_of(
        self, pairs: Sequence[EntityPair], *, limit_per_pair: int | None = None
    ) -> list[tuple[CorpusSentence, ...]]:
        """Find the sentences of each pair, in the order of `pairs`, by one lookup and one query.

        Entities match by id, or by name or page title, ignoring case and spacing (`erda.text.keys`).
        """
        found = [rows[:limit_per_pair] for rows in self.find(pairs)]
        wanted = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        by_row = {sentence.row: sentence for sentence in self.sentences(wanted)}
        return [tuple(by_row[int(row)] for row in rows) for rows in found]

    def sentences(self, rows: Sequence[int] | np.ndarray) -> list[CorpusSentence]:
        """Fetch the sentences of rows, in the given order."""
        wanted = np.asarray(rows, np.int64)
        if not len(wanted):
            return []
        if wanted.min() < 0 or wanted.max() >= len(self):
            raise DataError(f"{self.folder}: row {int(wanted.max())} requested; rows are 0 to {len(self) - 1}.")
        unique = np.unique(wanted)
        numbers = ", ".join(map(str, unique.tolist()))
        query = f"SELECT {_FIELDS} FROM read_parquet({self._files(unique)}) WHERE row IN ({numbers})"
        by_row = {sentence.row: sentence for sentence in self._fetched(query, len(unique))}
        return [by_row[row] for row in wanted.tolist()]

    def rows(self, rows: Sequence[int] | np.ndarray) -> list[Example]:
        """Fetch the examples of rows, in the given order."""
        return [sentence.example for sentence in self.sentences(rows)]

    def batches(self, *, start: int = 0, stop: int | None = None, size: int = 10_000) -> Iterator[list[CorpusSentence]]:
        """Yield the rows from `start` to `stop` in order, in batches of `size`."""
        stop = len(self) if stop is None else min(stop, len(self))
        for left in range(start, stop, size):
            right = min(left + size, stop)
            files = self._files(np.array([left, right - 1]), between=True)
            query = f"SELECT {_FIELDS} FROM read_parquet({files}) WHERE row >= {left} AND row < {right} ORDER BY row"
            yield self._fetched(query, right - left)

    def search(self, text: str, *, limit: int = 20) -> SearchHits:
        """Count the rows that contain every word of `text`, and return the first `limit`; exact phrases come first."""
        words = [text[left:right].lower() for left, right in tokens_of(text)]
        if not words:
            raise DataError("the search text has no words.")
        if not self._parts:
            return SearchHits(0, [])
        rarest_first = sorted(set(words), key=len, reverse=True)
        conditions = " AND ".join("contains(lower(text), ?)" for _ in rarest_first)
        query = (
            "WITH hits AS MATERIALIZED (SELECT row, contains(lower(text), ?) AS whole "
            f"FROM read_parquet({file_list(self._paths(self._parts))}) WHERE {conditions}) "
            f"SELECT row, (SELECT count(*) FROM hits) FROM hits ORDER BY whole DESC, row LIMIT {limit:d}"
        )
        hits = self._query(query, [" ".join(words), *rarest_first]).fetchall()
        return SearchHits(hits[0][1] if hits else 0, self.sentences([row for row, _ in hits]))

    def names_like(self, name: str, *, limit: int = 5) -> list[str]:
        """Find entity names that contain `name`, the most common first."""
        if not self._parts or not plain(name):
            return []
        files = file_list(self._paths(self._parts))
        query = (
            f"SELECT name FROM (SELECT unnest([head_name, tail_name]) AS name FROM read_parquet({files})) "
            f"WHERE contains(replace(lower(name), ' ', ''), ?) GROUP BY name "
            f"ORDER BY count(*) DESC, name LIMIT {limit:d}"
        )
        return [record[0] for record in self._query(query, [plain(name)]).fetchall()]

    def rows_of_heads(self, n_pairs: int, *, seed: int) -> np.ndarray:
        """Draw head entities at random until their rows hold about `n_pairs` sentence pairs with the same two entities.

        All rows of a head come together, so they also hold hard negatives: the same head with another tail.
        """
        files = file_list(self._paths(self._parts))
        query = f"""
            WITH pairs AS (SELECT head_key, count(*) // 2 AS n FROM read_parquet({files}) GROUP BY head_key, tail_key),
            heads AS (SELECT head_key, sum(n) AS n FROM pairs GROUP BY head_key),
            drawn AS (
                SELECT head_key, sum(n) OVER (ORDER BY md5(concat_ws(':', {seed:d}, head_key)), head_key) - n AS before
                FROM heads
            )
            SELECT row FROM read_parquet({files}) SEMI JOIN (SELECT head_key FROM drawn WHERE before < {n_pairs:d})
            USING (head_key) ORDER BY row
        """
        return np.asarray(self._query(query).fetchnumpy()["row"], np.int64)

    def stats(self) -> CorpusStats:
        """Count over the whole corpus; large groups spill to disk."""
        rows = f"read_parquet({file_list(self._paths(self._parts))})"
        counts: dict[str, Any] = {}
        for query in (
            "SELECT count(*) AS n_rows, count(DISTINCT source) AS n_documents, avg(n) AS length_mean, "
            "median(n) AS length_median, quantile_cont(n, 0.95) AS length_p95, max(n) AS length_max "
            f"FROM (SELECT source, length(text) - length(replace(text, ' ', '')) + 1 AS n FROM {rows})",
            "SELECT count(*) AS n_pairs, count(*) FILTER (n > 1) AS repeated_pairs, "
            "coalesce(sum(n) FILTER (n > 1), 0)::BIGINT AS rows_of_repeated "
            f"FROM (SELECT count(*) AS n FROM {rows} GROUP BY hash(head_key, tail_key))",
            "SELECT count(DISTINCT key) AS n_entities "
            f"FROM (SELECT unnest([hash(head_key), hash(tail_key)]) AS key FROM {rows})",
            f"SELECT count(DISTINCT sentence) AS n_sentences FROM {rows}",
        ):
            found = self._query(query)
            counts |= zip((column[0] for column in found.description), found.fetchall()[0], strict=True)
        sources = [
            (Path(source.path).name, source.n_rows) for segment in self.manifest.segments for source in segment.sources
        ]
        return CorpusStats(
            **counts,
            sources=tuple(sources),
            dropped=self.manifest.dropped,
            excluded_from=self.manifest.excluded_from,
            digest=self.manifest.digest,
        )

    def _engine(self) -> Any:
        if self._connection is None:
            self._connection = connect(n_threads=self._n_threads)
            self._connection.execute("SELECT 1 FROM parquet_schema(?) LIMIT 1", [str(self._paths(self._parts)[0])])
            self._connection.execute("SET parquet_metadata_cache = true")
        return self._connection

    def _query(self, query: str, values: Sequence[Any] = ()) -> Any:
        with disk_faults(self.folder):
            return self._engine().execute(query, list(values))

    def _fetched(self, query: str, n_rows: int) -> list[CorpusSentence]:
        found = [_sentence(record) for record in self._query(query).fetchall()]
        if len(found) != n_rows:
            raise DataError(f"{self.folder}: {len(found)} rows, expected {n_rows}; the corpus is damaged.")
        return found

    def _paths(self, parts: Sequence[CorpusPart]) -> list[Path]:
        return [self.folder / part.file.path for part in parts]

    def _files(self, rows: np.ndarray, *, between: bool = False) -> str:
        """SQL list of the parts with these sorted rows, or of all parts from the first row to the last."""
        numbers = sorted({bisect_right(self._starts, row) - 1 for row in rows.tolist()})
        if between:
            numbers = list(range(numbers[0], numbers[-1] + 1))
        return file_list(self._paths([self._parts[number] for number in numbers]))


def _sentence(record: Sequence[Any]) -> CorpusSentence:
    row, key, text, head_name, head_start, head_end, head_id, tail_name, tail_start, tail_end, tail_id, *rest = record
    head = Entity(head_name, Span(head_start, head_end), head_id)
    tail = Entity(tail_name, Span(tail_start, tail_end), tail_id)
    return CorpusSentence(row, key, Example(tuple(text.split(" ")), head, tail, rest[0], f"corpus:{row}", rest[1]))
