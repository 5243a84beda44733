"""Second half of a build: chunks -> the parts of a segment, sorted by entity pair, without duplicates, numbered.

Each part holds a range of head entities, so it can be made, checked and repeated on its own; DuckDB sorts it, out of
core where it has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from erda.corpus.lookup import write_lookup
from erda.corpus.manifest import Part, StoredFile
from erda.corpus.sources import Row
from erda.corpus.sql import file_list, quoted
from erda.corpus.staging import Staged
from erda.files import whole_file

PART_ROWS = 500_000
ROW_GROUP = 2048  # the smallest that DuckDB reads: a few rows cost little
SAMPLE_ROWS = 1_000_000
_CONTENT = ["row", "head_key", "tail_key", "sentence", *Row._fields]
_COLUMNS = ", ".join(["head_key", "tail_key", "sentence", *Row._fields, "lookup"])


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Head keys from `low` on and below `high`; None is no border."""

    low: str | None
    high: str | None

    def where(self) -> str:
        """As a condition in SQL."""
        conditions = [f"head_key >= {quoted(self.low)}"] if self.low is not None else []
        conditions += [f"head_key < {quoted(self.high)}"] if self.high is not None else []
        return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def key_ranges(connection: Any, staged: Sequence[Staged]) -> tuple[KeyRange, ...]:
    """Ranges of head keys that hold about `PART_ROWS` rows each; never an entity in two."""
    n_rows = sum(source.n_rows for source in staged)
    n_parts = max(1, round(n_rows / PART_ROWS))
    chunks = [path for source in staged for path in source.chunk_paths()]
    borders: list[str] = []
    if n_parts > 1:
        every = max(1, n_rows // SAMPLE_ROWS)
        keys = connection.execute(
            f"SELECT head_key FROM read_parquet({file_list(chunks)}) WHERE sentence % {every} = 0 ORDER BY head_key"
        ).fetchnumpy()["head_key"]
        borders = sorted({str(keys[len(keys) * i // n_parts]) for i in range(1, n_parts)} - {str(keys[0])})
    return tuple(KeyRange(low, high) for low, high in pairwise([None, *borders, None]))


def write_part(
    connection: Any,
    folder: Path,
    path: Path,
    *,
    staged: Sequence[Staged],
    earlier: Sequence[Path],
    keys: KeyRange,
    start: int,
) -> Part:
    """Sort, number and write the rows of one range; of duplicates the first read stays, none that `earlier` has."""
    pool = " UNION ALL ".join(
        f"SELECT {origin} AS origin, ordinal, {_COLUMNS} "
        f"FROM read_parquet({file_list(source.chunk_paths())}) {keys.where()}"
        for origin, source in enumerate(staged)
        if source.chunks
    )
    known = ""
    if earlier:
        known = (
            "ANTI JOIN (SELECT head_key, tail_key, sentence FROM "
            f"read_parquet({file_list(earlier)}) {keys.where()}) AS earlier USING (head_key, tail_key, sentence)"
        )
    with whole_file(path) as temporary:
        connection.execute(
            f"""COPY (
                WITH pool AS ({pool}),
                first AS (
                    SELECT * FROM pool
                    QUALIFY row_number() OVER (PARTITION BY head_key, tail_key, sentence ORDER BY origin, ordinal) = 1
                )
                SELECT {start} + row_number() OVER (ORDER BY head_key, tail_key, sentence) - 1 AS row, {_COLUMNS}
                FROM first {known} ORDER BY row
            ) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"""
        )
        columns = ", ".join(f"coalesce({name}::VARCHAR, chr(30))" for name in _CONTENT)
        content, n_rows = connection.execute(
            f"SELECT bit_xor(md5_number(concat_ws(chr(31), {columns})))::VARCHAR, count(*) "
            f"FROM read_parquet({quoted(temporary)})"
        ).fetchall()[0]
    return Part(StoredFile.of(folder, path), start, n_rows, keys.low, keys.high, content or "0")


def write_segment_lookup(connection: Any, folder: Path, parts: Sequence[Path]) -> tuple[StoredFile, StoredFile]:
    """Write the lookup of a segment beside its parts: all keys sorted, and the row of each (`lookup.py`)."""
    files = file_list(parts)
    n_keys = connection.execute(f"SELECT coalesce(sum(len(lookup)), 0) FROM read_parquet({files})").fetchall()[0][0]
    result = connection.sql(
        f"SELECT key, row FROM (SELECT unnest(lookup) AS key, row FROM read_parquet({files})) ORDER BY key, row"
    )
    keys, rows = parts[0].with_name("keys.npy"), parts[0].with_name("rows.npy")
    batches = ((batch.column(0).to_numpy(), batch.column(1).to_numpy()) for batch in result.to_arrow_reader(1_000_000))
    write_lookup(keys, rows, int(n_keys), batches)
    return StoredFile.of(folder, keys), StoredFile.of(folder, rows)
