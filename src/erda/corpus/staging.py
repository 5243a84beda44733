"""First half of a build: read the sources into a DuckDB file, `build/staging.duckdb`.

Rows, redirects and the position in the source are committed in one transaction per chunk, so a killed build resumes
after the last committed chunk of each source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from erda.corpus.exclude import NEAR, Excluded
from erda.corpus.sources import CorpusRow, Limits, Source, Tally
from erda.corpus.sql import connect, is_full, quoted
from erda.files import decode_json, remove_own
from erda.text.keys import EntityPair, entity_key, lookup_keys, sentence_key

CHUNK_ROWS = 100_000
STAGING_FILE = "staging.duckdb"
SAME_ENTITY = "head and tail are the same entity"
_SPANS = {name: "INTEGER" for name in CorpusRow._fields if name.endswith(("_start", "_end"))}
_COLUMNS = {
    "file": "VARCHAR",  # sha256 of the source
    "ordinal": "BIGINT",  # position among the rows of the source
    **{name: _SPANS.get(name, "VARCHAR") for name in CorpusRow._fields},
    "head_key": "VARCHAR",
    "tail_key": "VARCHAR",
    "sentence": "UBIGINT",
    "lookup": "UBIGINT[]",
}
_SCHEMA = f"""
    CREATE TABLE IF NOT EXISTS staged ({", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())});
    CREATE TABLE IF NOT EXISTS redirects (file VARCHAR, origin VARCHAR, target VARCHAR);
    CREATE TABLE IF NOT EXISTS progress (file VARCHAR, state VARCHAR);
"""


@dataclass
class SourceProgress:
    """Progress of one source: `n_read` rows passed the filters up to unit `position`."""

    position: int = 0
    n_read: int = 0
    done: bool = False
    tally: Tally = field(default_factory=Tally)


class _StagedRow(NamedTuple):
    file: str
    ordinal: int
    row: CorpusRow
    sentence: int
    lookup: set[int]


class Staging:
    """The staging database. Use as a context manager; closing keeps the file."""

    def __init__(self, folder: Path, *, memory: str) -> None:
        import duckdb

        def opened() -> Any:
            connection = connect(folder / STAGING_FILE, memory=memory, spill=folder / "spill")
            connection.execute(_SCHEMA)
            return connection

        try:
            self.connection = opened()
        except duckdb.Error as error:
            if is_full(error):
                raise
            for path in folder.glob(f"{STAGING_FILE}*"):  # damaged, or truncated by a full disk: start over
                remove_own(path)
            self.connection = opened()

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Run a block in one transaction."""
        self.connection.execute("BEGIN")
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            with suppress(Exception):  # a failed COMMIT has rolled back already
                self.connection.execute("ROLLBACK")
            raise

    @property
    def is_sorted(self) -> bool:
        """Whether the second half of the build has sorted the rows."""
        return self._value("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'sorted'") > 0

    def n_rows(self, file: str) -> int:
        """Number of staged rows of a source."""
        return self._value(f"SELECT count(*) FROM staged WHERE file = {quoted(file)}")

    def progress(self, file: str) -> SourceProgress:
        """The committed progress of a source."""
        found = self.connection.execute("SELECT state FROM progress WHERE file = ?", [file]).fetchall()
        return decode_json(found[0][0], SourceProgress, place=STAGING_FILE) if found else SourceProgress()

    def keep_only(self, files: Sequence[str]) -> None:
        """Delete the rows of sources that no longer belong to the build.

        Sorting applies redirects to the rows of all sources, so after it a changed source deletes everything.
        """
        known = {file for (file,) in self.connection.execute("SELECT file FROM progress").fetchall()}
        if known <= set(files) and not (self.is_sorted and known != set(files)):
            return
        others = ", ".join(quoted(file) for file in files) if not self.is_sorted else "''"
        with self.transaction() as connection:
            connection.execute("DROP TABLE IF EXISTS sorted")
            for table in ("staged", "redirects", "progress"):
                connection.execute(f"DELETE FROM {table} WHERE file NOT IN ({others})")

    def read(
        self, source: Source, file: str, *, limits: Limits, excluded: Excluded, tick: Callable[[], None]
    ) -> SourceProgress:
        """Stage a source from its committed position on; call `tick` after each batch."""
        state = self.progress(file)
        if state.done:
            return state
        rows: list[_StagedRow] = []
        redirects: dict[str, str] = {}
        for batch in source.batches(state.position, limits):
            state.tally.add(batch.tally)
            redirects.update(batch.redirects)
            for row, sentence in _admitted(batch.rows, excluded, state.tally):
                rows.append(_StagedRow(file, state.n_read, row, sentence, _lookup(row)))
                state.n_read += 1
            tick()
            state.position = batch.position
            if len(rows) >= CHUNK_ROWS:
                self._commit(file, state, rows, redirects)
                rows, redirects = [], {}
        state.done = True
        self._commit(file, state, rows, redirects)
        return state

    def _commit(
        self, file: str, state: SourceProgress, rows: Sequence[_StagedRow], redirects: Mapping[str, str]
    ) -> None:
        import pyarrow as pa

        with self.transaction():
            self._insert(rows)
            columns = {"file": [file] * len(redirects), "origin": redirects.keys(), "target": redirects.values()}
            self._append("redirects", {name: pa.array(list(one), pa.string()) for name, one in columns.items()})
            self._save(file, state)

    def _save(self, file: str, state: SourceProgress) -> None:
        self.connection.execute("DELETE FROM progress WHERE file = ?", [file])
        self.connection.execute("INSERT INTO progress VALUES (?, ?)", [file, json.dumps(asdict(state))])

    def _insert(self, staged: Sequence[_StagedRow]) -> None:
        import pyarrow as pa

        types = {"VARCHAR": pa.string(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "UBIGINT": pa.uint64()}
        rows = [one.row for one in staged]
        columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(CorpusRow._fields)}
        columns |= {name: [getattr(one, name) for one in staged] for name in ("file", "ordinal", "sentence")}
        columns["lookup"] = [sorted(one.lookup) for one in staged]
        columns["head_key"] = [entity_key(row.head_name, row.head_id) for row in rows]
        columns["tail_key"] = [entity_key(row.tail_name, row.tail_id) for row in rows]
        kinds = {name: types.get(kind, pa.list_(pa.uint64())) for name, kind in _COLUMNS.items()}
        self._append("staged", {name: pa.array(columns[name], kind) for name, kind in kinds.items()})

    def _append(self, table: str, arrays: Mapping[str, Any]) -> None:
        import pyarrow as pa

        self.connection.register("chunk", pa.table(dict(arrays)))
        self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM chunk")
        self.connection.unregister("chunk")

    def resolve_redirects(self) -> None:
        """Replace the ids of redirect pages by those of their targets, following at most two redirects.

        Call inside a transaction. Rows whose head and tail become the same entity are dropped and counted.
        """
        self.connection.execute("""
            CREATE OR REPLACE TEMP TABLE targets AS
            WITH single AS (SELECT origin, min(target) AS target FROM redirects GROUP BY origin)
            SELECT one.origin AS id, coalesce(two.target, one.target) AS target
            FROM single AS one LEFT JOIN single AS two ON two.origin = one.target;
            CREATE OR REPLACE TEMP TABLE moved AS
            SELECT staged.*, coalesce(head.target, head_id) AS new_head, coalesce(tail.target, tail_id) AS new_tail,
                row_number() OVER () - 1 AS place
            FROM staged LEFT JOIN targets AS head ON head.id = head_id LEFT JOIN targets AS tail ON tail.id = tail_id
            WHERE head.target IS NOT NULL OR tail.target IS NOT NULL;
            DELETE FROM staged USING moved WHERE staged.file = moved.file AND staged.ordinal = moved.ordinal;
        """)
        states: dict[str, SourceProgress] = {}
        n_fields = len(CorpusRow._fields)
        for start in range(0, self._value("SELECT count(*) FROM moved"), CHUNK_ROWS):
            stop = start + CHUNK_ROWS
            page = self.connection.execute(f"SELECT * FROM moved WHERE place >= {start} AND place < {stop}").fetchall()
            kept: list[_StagedRow] = []
            for file, ordinal, *values, _, _, sentence, lookup, head_id, tail_id, _ in page:
                row = CorpusRow(*values[:n_fields])._replace(head_id=head_id, tail_id=tail_id)
                if head_id == tail_id:
                    states.setdefault(file, self.progress(file)).tally.drop(SAME_ENTITY, row.source or "")
                else:
                    kept.append(_StagedRow(file, ordinal, row, sentence, {*lookup, *_lookup(row)}))
            self._insert(kept)
        for file, state in states.items():
            self._save(file, state)

    def _value(self, query: str) -> int:
        return int(self.connection.execute(query).fetchall()[0][0])


def _admitted(rows: Sequence[CorpusRow], excluded: Excluded, tally: Tally) -> Iterator[tuple[CorpusRow, int]]:
    """Yield valid rows with the keys of their sentences; count the others."""
    keys = {text: sentence_key(text) for text in dict.fromkeys(row.text for row in rows)}
    rejected = excluded.rejected(keys)
    for row in rows:
        if reason := rejected.get(row.text):
            tally.drop(reason, (row.source or "") if reason == NEAR else "")
        elif entity_key(row.head_name, row.head_id) == entity_key(row.tail_name, row.tail_id):
            tally.drop(SAME_ENTITY, row.source or "")
        else:
            yield row, keys[row.text]


def _lookup(row: CorpusRow) -> set[int]:
    return lookup_keys(EntityPair(row.head_name, row.tail_name, row.head_id, row.tail_id))
