"""The two halves of a build: read the sources into chunks, then sort the chunks into the files of the corpus.

A chunk is a Parquet file `build/rows-<source>-<number>.<checksum>.parquet` of about 100,000 rows; its metadata hold the
position in the source. A build resumes after the last chunk of each source. DuckDB sorts out of core; after a kill,
sorting starts again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.corpus_store import (
    LOOKUP_TYPES,
    CorpusPart,
    CorpusRow,
    StoredFile,
    file_list,
    find_checked,
    quoted,
    write_checked,
)
from erda.corpus.exclude import NEAR, Excluded
from erda.corpus.sources import Source, Tally
from erda.errors import one_line
from erda.files import decode_json, whole_file
from erda.text.keys import EntityPair, entity_key, lookup_keys, sentence_key

CHUNK_ROWS = 100_000
PART_ROWS = 500_000
ROW_GROUP = 2048  # the smallest group that DuckDB reads, so fetching a few rows is cheap
SAME_ENTITY = "head and tail are the same entity"
_KEYS = "head_key, tail_key, sentence"
_STORED = ", ".join([_KEYS, *CorpusRow._fields])
_COLUMNS = ("file", "ordinal", "sentence", "lookup", *CorpusRow._fields, "head_key", "tail_key")  # of a chunk
_METADATA = b"erda"


@dataclass
class ChunkAbout:
    """Metadata of a chunk, which ends at unit `position` and row `n_rows` of its source."""

    position: int = 0
    n_rows: int = 0
    is_last: bool = False
    tally: Tally = field(default_factory=Tally)
    redirects: dict[str, str] = field(default_factory=dict)


class StagedSource:
    """The chunks of one source: those that an interrupted build left in `folder`, and new ones."""

    def __init__(self, file: str, folder: Path) -> None:
        self.file, self._folder = file, folder
        self.paths: list[Path] = []
        self.tally, self._last = Tally(), ChunkAbout()
        while path := find_checked(folder, self._stem, ".parquet"):
            self._add(path)

    def read(self, source: Source, excluded: Excluded) -> None:
        """Write the missing chunks of the source."""
        from tqdm import tqdm

        if self._last.is_last:
            return
        rows, about = list[dict[str, Any]](), ChunkAbout(n_rows=self._last.n_rows)
        size, path = source.path.stat().st_size, source.path
        with tqdm(total=size, desc=one_line(path.name), unit="B", unit_scale=True, disable=None) as bar:
            for batch in source.batches(self._last.position):
                if len(rows) >= CHUNK_ROWS:
                    self._write(rows, about)
                    rows, about = [], ChunkAbout(n_rows=about.n_rows)
                about.position = batch.position
                about.tally.add(batch.tally)
                about.redirects.update(batch.redirects)
                for row in _admitted(batch.rows, excluded, about.tally):
                    rows.append({"file": self.file, "ordinal": about.n_rows, **row})
                    about.n_rows += 1
                bar.update(max(0, source.meter.position() - bar.n))
        about.is_last = True
        self._write(rows, about)

    @property
    def _stem(self) -> str:
        return f"rows-{self.file[:16]}-{len(self.paths):06d}"

    def _write(self, rows: Sequence[dict[str, Any]], about: ChunkAbout) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"ordinal": pa.int64(), "sentence": pa.uint64(), "lookup": pa.list_(pa.uint64())}
        kinds |= {name: pa.int32() for name in CorpusRow._fields if name.endswith(("_start", "_end"))}
        fields = [(name, kinds.get(name, pa.string())) for name in _COLUMNS]
        schema = pa.schema(fields, {_METADATA: json.dumps(asdict(about))})
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema), content)
        self._add(write_checked(self._folder, self._stem, ".parquet", content.getvalue()))

    def _add(self, path: Path) -> None:
        self._last = _about(path)
        self.tally.add(self._last.tally)
        self.paths.append(path)


def _about(path: Path) -> ChunkAbout:
    import pyarrow.parquet as pq

    return decode_json(pq.read_schema(path).metadata[_METADATA], ChunkAbout, place=str(path))


def _admitted(rows: Sequence[CorpusRow], excluded: Excluded, tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield valid rows with the keys of their sentences and entities; count the others."""
    keys = {text: sentence_key(text) for text in dict.fromkeys(row.text for row in rows)}
    rejected = excluded.rejected(keys)
    for row in rows:
        head_key, tail_key = entity_key(row.head_name, row.head_id), entity_key(row.tail_name, row.tail_id)
        if reason := rejected.get(row.text):
            tally.drop(reason, (row.source or "") if reason == NEAR else "")
        elif head_key == tail_key:
            tally.drop(SAME_ENTITY, row.source or "")
        else:
            lookup = _lookup(row.head_name, row.tail_name, row.head_id, row.tail_id)
            own = {"sentence": keys[row.text], "lookup": lookup, "head_key": head_key, "tail_key": tail_key}
            yield row._asdict() | own


def _lookup(head: str, tail: str, head_id: str | None, tail_id: str | None) -> list[int]:
    return sorted(lookup_keys(EntityPair(head, tail, head_id, tail_id)))


# -- sorting -----------------------------------------------------------------------------------------------------------


def sort_rows(connection: Any, sources: Sequence[StagedSource]) -> dict[str, int]:
    """Resolve redirects, then sort all rows into the table `sorted`; return the number of unsorted rows by source.

    The first of duplicate rows, in the order of `sources`, is kept.
    """
    paths = [path for source in sources for path in source.paths]
    connection.execute(f"CREATE VIEW staged AS SELECT * FROM read_parquet({file_list(paths)})")
    _resolve_redirects(connection, sources)
    connection.execute("""
        CREATE VIEW rows AS
        SELECT * FROM staged ANTI JOIN moved USING (file, ordinal)
        UNION ALL BY NAME SELECT * FROM moved WHERE head_id IS DISTINCT FROM tail_id
    """)
    order = f"list_position([{', '.join(quoted(source.file) for source in sources)}], file), ordinal"
    connection.execute(f"""
        CREATE TABLE sorted AS
        WITH first AS (SELECT * FROM rows QUALIFY row_number() OVER (PARTITION BY {_KEYS} ORDER BY {order}) = 1)
        SELECT {_STORED}, lookup FROM first ORDER BY {_KEYS}
    """)
    return dict(connection.execute("SELECT file, count(*) FROM rows GROUP BY file").fetchall())


def _resolve_redirects(connection: Any, sources: Sequence[StagedSource]) -> None:
    """Write rows with an entity that redirects to the table `moved`, with the redirect's target as the entity.

    At most two redirects are followed. Rows whose head and tail become the same entity are counted as dropped.
    """
    import pyarrow as pa

    kinds = ["VARCHAR"] * 4
    connection.create_function("lookup_keys", _lookup, kinds, "UBIGINT[]", null_handling="special")
    connection.execute("CREATE TABLE redirects (origin VARCHAR, target VARCHAR)")
    for source in sources:
        for redirects in (_about(path).redirects for path in source.paths):
            columns = {"origin": list(redirects), "target": list(redirects.values())}
            schema = pa.schema([("origin", pa.string()), ("target", pa.string())])
            connection.register("chunk", pa.table(columns, schema=schema))
            connection.execute("INSERT INTO redirects BY NAME SELECT * FROM chunk")
            connection.unregister("chunk")
    connection.execute("""
        CREATE TABLE targets AS
        WITH single AS (SELECT origin, min(target) AS target FROM redirects GROUP BY origin)
        SELECT one.origin AS id, coalesce(two.target, one.target) AS target
        FROM single AS one LEFT JOIN single AS two ON two.origin = one.target;
        CREATE TABLE moved AS
        WITH resolved AS (
            SELECT staged.* REPLACE (
                coalesce(head.target, head_id) AS head_id, coalesce(head.target, head_key) AS head_key,
                coalesce(tail.target, tail_id) AS tail_id, coalesce(tail.target, tail_key) AS tail_key
            )
            FROM staged LEFT JOIN targets AS head ON head.id = head_id LEFT JOIN targets AS tail ON tail.id = tail_id
            WHERE head.target IS NOT NULL OR tail.target IS NOT NULL
        )
        SELECT * REPLACE (
            list_distinct(lookup || lookup_keys(head_name, tail_name, head_id, tail_id)) AS lookup
        ) FROM resolved;
    """)
    tallies = {source.file: source.tally for source in sources}
    dropped = connection.execute("SELECT file, source FROM moved WHERE head_id = tail_id ORDER BY file, ordinal")
    for file, place in iter(dropped.fetchone, None):
        tallies[file].drop(SAME_ENTITY, place or "")


def write_parts(connection: Any, folder: Path) -> tuple[CorpusPart, ...]:
    """Write the sorted rows with their numbers as Parquet files of `PART_ROWS` rows."""
    parts = []
    (n_rows,) = connection.execute("SELECT count(*) FROM sorted").fetchall()[0]
    columns = ", ".join(f"coalesce({name}::VARCHAR, chr(30))" for name in f"row, {_STORED}".split(", "))
    digest = f"bit_xor(md5_number(concat_ws(chr(31), {columns})))::VARCHAR"
    for number, first in enumerate(range(0, n_rows, PART_ROWS)):
        last = min(first + PART_ROWS, n_rows)
        path = folder / f"part-{number:05d}.parquet"
        with whole_file(path) as temporary:
            connection.execute(
                f"COPY (SELECT rowid AS row, {_STORED} FROM sorted WHERE rowid >= {first} AND rowid < {last} "
                f"ORDER BY rowid) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd, "
                f"ROW_GROUP_SIZE {ROW_GROUP}, USE_TMP_FILE false)"  # `temporary` is one already
            )
            content = connection.execute(f"SELECT {digest} FROM read_parquet({quoted(temporary)})").fetchall()[0][0]
        parts.append(CorpusPart(StoredFile.of(folder, path), last - first, content))
    return tuple(parts)


def write_lookup(connection: Any, folder: Path) -> tuple[StoredFile, StoredFile]:
    """Write the sorted keys and their rows in batches; a memory map would crash on a full disk."""
    n_keys = connection.execute("SELECT coalesce(sum(len(lookup)), 0) FROM sorted").fetchall()[0][0]
    query = "SELECT unnest(lookup) AS key, rowid AS row FROM sorted ORDER BY key, row"
    keys, rows = folder / "keys.npy", folder / "rows.npy"
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
