"""Second half of a build: sort the staged rows and write the files of a segment.

A segment is a list of Parquet parts (numbered rows without duplicates, sorted by entity pair) and a lookup of entity
pairs. DuckDB sorts out of core, in one transaction. After a kill, the files are written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.lookup import LOOKUP_TYPES
from erda.corpus.manifest import CorpusPart, StoredFile
from erda.corpus.sources import CorpusRow
from erda.corpus.sql import file_list, quoted
from erda.corpus.staging import Staging
from erda.files import whole_file

PART_ROWS = 500_000
ROW_GROUP = 2048  # the smallest group that DuckDB reads, so fetching a few rows is cheap
_KEYS = "head_key, tail_key, sentence"
_STORED = ", ".join(["head_key", "tail_key", "sentence", *CorpusRow._fields])
_CONTENT = ["row", "head_key", "tail_key", "sentence", *CorpusRow._fields]


def sort_rows(staging: Staging, files: Sequence[str], earlier: Sequence[Path]) -> int:
    """Resolve redirects, then sort the staged rows into the table `sorted`; return the number of rows.

    The first of duplicate rows, in the order of `files`, is kept. Rows of the parts `earlier` are skipped.
    """
    if not staging.is_sorted:
        known = ""
        if earlier:
            known = f"ANTI JOIN (SELECT {_KEYS} FROM read_parquet({file_list(earlier)})) AS earlier USING ({_KEYS})"
        order = f"list_position([{', '.join(map(quoted, files))}], file), ordinal"
        with staging.transaction() as connection:
            staging.resolve_redirects()
            connection.execute(f"""
                CREATE TABLE sorted AS
                WITH first AS (
                    SELECT * FROM staged QUALIFY row_number() OVER (PARTITION BY {_KEYS} ORDER BY {order}) = 1
                )
                SELECT {_STORED}, lookup FROM first {known} ORDER BY {_KEYS}
            """)
    return int(staging.connection.execute("SELECT count(*) FROM sorted").fetchall()[0][0])


def write_parts(connection: Any, folder: Path, segment: Path, *, start: int, n_rows: int) -> tuple[CorpusPart, ...]:
    """Write the sorted rows, numbered from `start` on, as Parquet files of `PART_ROWS` rows in `segment`."""
    parts = []
    for number, first in enumerate(range(0, max(n_rows, 1), PART_ROWS)):
        last = min(first + PART_ROWS, n_rows)
        path = segment / f"part-{number:05d}.parquet"
        with whole_file(path) as temporary:
            connection.execute(
                f"COPY (SELECT {start} + rowid AS row, {_STORED} FROM sorted WHERE rowid >= {first} AND rowid < {last} "
                f"ORDER BY rowid) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd, "
                f"ROW_GROUP_SIZE {ROW_GROUP}, USE_TMP_FILE false)"  # `temporary` is one already
            )
            columns = ", ".join(f"coalesce({name}::VARCHAR, chr(30))" for name in _CONTENT)
            digest = f"bit_xor(md5_number(concat_ws(chr(31), {columns})))::VARCHAR"
            content = connection.execute(f"SELECT {digest} FROM read_parquet({quoted(temporary)})").fetchall()[0][0]
        parts.append(CorpusPart(StoredFile.of(folder, path), start + first, last - first, content or "0"))
    return tuple(parts)


def write_segment_lookup(connection: Any, folder: Path, segment: Path, *, start: int) -> tuple[StoredFile, StoredFile]:
    """Write the lookup of the sorted rows (`lookup.py`) in batches; a memory map would crash on a full disk."""
    n_keys = connection.execute("SELECT coalesce(sum(len(lookup)), 0) FROM sorted").fetchall()[0][0]
    query = f"SELECT unnest(lookup) AS key, {start} + rowid AS row FROM sorted ORDER BY key, row"
    keys, rows = segment / "keys.npy", segment / "rows.npy"
    with (
        whole_file(keys) as key_path,
        whole_file(rows) as row_path,
        key_path.open("wb") as key_file,
        row_path.open("wb") as row_file,
    ):
        columns = list(zip((key_file, row_file), LOOKUP_TYPES, strict=True))
        for file, kind in columns:
            header = {"descr": kind.str, "fortran_order": False, "shape": (int(n_keys),)}
            np.lib.format.write_array_header_1_0(file, header)
        for batch in connection.sql(query).to_arrow_reader(1_000_000):
            for number, (file, kind) in enumerate(columns):
                file.write(batch.column(number).to_numpy().astype(kind, copy=False).tobytes())
    return StoredFile.of(folder, keys), StoredFile.of(folder, rows)
