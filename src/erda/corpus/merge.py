"""Second half of a build: chunks -> the parts of a segment, sorted by entity pair, without duplicates, numbered.

Each part holds a range of head entities, so it can be made, checked, repeated and mended on its own; DuckDB sorts it,
out of core where it has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.engine import file_list, quoted
from erda.corpus.manifest import Part, StoredFile, store_file
from erda.corpus.sources import Row
from erda.corpus.staging import Staged

PART_ROWS = 500_000
ROW_GROUP = 2048  # the smallest that DuckDB reads: a few rows cost little
SAMPLE_ROWS = 1_000_000
_CONTENT = ["row", "head_key", "tail_key", "sentence", *Row._fields]
COLUMNS = ", ".join(["head_key", "tail_key", "sentence", *Row._fields, "lookup"])


def part_bounds(connection: Any, staged: Sequence[Staged]) -> list[tuple[str | None, str | None]]:
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
    edges: list[str | None] = [None, *borders, None]
    return list(pairwise(edges))


def write_part(
    connection: Any,
    folder: Path,
    path: Path,
    *,
    staged: Sequence[Staged],
    earlier: Sequence[Path],
    bound: tuple[str | None, str | None],
    start: int,
) -> Part:
    """Sort, number and write the rows of one range; of duplicates the first read stays, none that `earlier` has."""
    low, high = bound
    within = _within(low, high)
    pool = " UNION ALL ".join(
        f"SELECT {origin} AS origin, ordinal, {COLUMNS} FROM read_parquet({file_list(source.chunk_paths())}) {within}"
        for origin, source in enumerate(staged)
        if source.chunks
    )
    known = ""
    if earlier:
        known = (
            "ANTI JOIN (SELECT head_key, tail_key, sentence FROM "
            f"read_parquet({file_list(list(earlier))}) {within}) AS earlier USING (head_key, tail_key, sentence)"
        )
    temporary = path.with_name(path.name + ".tmp")
    connection.execute(
        f"""COPY (
            WITH pool AS ({pool}),
            first AS (
                SELECT * FROM pool
                QUALIFY row_number() OVER (PARTITION BY head_key, tail_key, sentence ORDER BY origin, ordinal) = 1
            )
            SELECT {start} + row_number() OVER (ORDER BY head_key, tail_key, sentence) - 1 AS row, {COLUMNS}
            FROM first {known} ORDER BY row
        ) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"""
    )
    content, n_rows = content_digest(connection, temporary)
    return Part(store_file(folder, temporary, path), start, n_rows, low, high, content)


def content_digest(connection: Any, path: Path) -> tuple[str, int]:
    """A digest of the rows of a part, numbers included, and how many there are."""
    columns = ", ".join(f"coalesce({name}::VARCHAR, chr(30))" for name in _CONTENT)
    digest, n_rows = connection.execute(
        f"SELECT bit_xor(md5_number(concat_ws(chr(31), {columns})))::VARCHAR, count(*) "
        f"FROM read_parquet({quoted(path)})"
    ).fetchall()[0]
    return digest or "0", n_rows


def write_lookup(connection: Any, folder: Path, segment: Path, parts: Sequence[Path]) -> tuple[StoredFile, StoredFile]:
    """Write the lookup of a segment: all keys sorted, and the row of each, as two arrays on disk (`lookup.py`)."""
    files = file_list(list(parts))
    n_keys = connection.execute(f"SELECT coalesce(sum(len(lookup)), 0) FROM read_parquet({files})").fetchall()[0][0]
    temporary = segment / "keys.npy.tmp", segment / "rows.npy.tmp"
    arrays = [
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(int(n_keys),))
        for path, dtype in zip(temporary, (np.uint64, np.int64), strict=True)
    ]
    result = connection.sql(
        f"SELECT key, row FROM (SELECT unnest(lookup) AS key, row FROM read_parquet({files})) ORDER BY key, row"
    )
    at = 0
    for batch in result.to_arrow_reader(1_000_000):
        for array, column in zip(arrays, batch.columns, strict=True):
            array[at : at + batch.num_rows] = column.to_numpy()
        at += batch.num_rows
    for array in arrays:
        array.flush()
    del arrays
    keys, rows = (store_file(folder, path, path.with_suffix("")) for path in temporary)
    return keys, rows


def _within(low: str | None, high: str | None) -> str:
    conditions = []
    if low is not None:
        conditions.append(f"head_key >= {quoted(low)}")
    if high is not None:
        conditions.append(f"head_key < {quoted(high)}")
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
