"""First half of a build: sources -> chunks of rows, each sorted, noted in a journal as soon as it is on disk.

A build that was stopped at any moment goes on after the last noted chunk of each source.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from erda.corpus.exclude import NEAR, Excluded
from erda.corpus.manifest import StoredFile, fault_of
from erda.corpus.sources import Limits, Row, Source, Tally
from erda.corpus.sql import connect, file_list
from erda.files import add_to_journal, journal_values, whole_file
from erda.text.keys import EntityPair, entity_key, lookup_keys, sentence_key

CHUNK_ROWS = 100_000
JOURNAL = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A line of the journal: what was read since the line before, up to `position` of the source."""

    position: int
    done: bool
    chunk: StoredFile | None
    redirects: StoredFile | None
    n_rows: int
    tally: Tally


@dataclass
class Staged:
    """What has been read of one source."""

    folder: Path
    chunks: list[StoredFile] = field(default_factory=list)
    redirects: list[StoredFile] = field(default_factory=list)
    position: int = 0
    n_rows: int = 0
    tally: Tally = field(default_factory=Tally)
    done: bool = False

    def chunk_paths(self) -> list[Path]:
        """The chunks' files."""
        return [self.folder / chunk.path for chunk in self.chunks]

    def add(self, noted: StagedChunk) -> None:
        """Count a chunk that is on the disk."""
        self.chunks += [noted.chunk] if noted.chunk else []
        self.redirects += [noted.redirects] if noted.redirects else []
        self.position, self.done = noted.position, noted.done
        self.n_rows += noted.n_rows
        self.tally.add(noted.tally)


def stage(
    source: Source, folder: Path, *, limits: Limits, excluded: Excluded, tick: Callable[[], None] = lambda: None
) -> Staged:
    """Read a source into chunks in `folder`, going on where an earlier run stopped; `tick` is called now and then."""
    folder.mkdir(parents=True, exist_ok=True)
    staged = read_journal(folder)
    if staged.done:
        return staged
    stager = _Stager(staged, excluded)
    for batch in source.batches(staged.position, limits):
        stager.take(batch.rows, batch.tally, batch.redirects)
        tick()
        staged.position = batch.position
        if len(stager.rows) >= CHUNK_ROWS:
            stager.flush(done=False)
    stager.flush(done=True)
    return staged


class _Stager:
    def __init__(self, staged: Staged, excluded: Excluded) -> None:
        self.staged, self.excluded = staged, excluded
        self._clear()

    def _clear(self) -> None:
        self.rows: list[Row] = []
        self.sentences: list[int] = []
        self.redirects: dict[str, str] = {}
        self.tally = Tally()

    def take(self, rows: Sequence[Row], tally: Tally, redirects: Mapping[str, str]) -> None:
        """Keep the rows that may enter."""
        self.tally.add(tally)
        self.redirects.update(redirects)
        keys = {text: sentence_key(text) for text in dict.fromkeys(row.text for row in rows)}
        refused = self.excluded.refused(keys)
        for row in rows:
            if reason := refused.get(row.text):
                self.tally.drop(reason, (row.source or "") if reason == NEAR else "")
            elif entity_key(row.head_name, row.head_id) == entity_key(row.tail_name, row.tail_id):
                self.tally.drop("head and tail are the same entity", row.source or "")
            else:
                self.rows.append(row)
                self.sentences.append(keys[row.text])

    def flush(self, *, done: bool) -> None:
        """Write a chunk and note it."""
        import pyarrow as pa

        staged, chunk, redirects = self.staged, None, None
        if self.rows:
            ordinals = range(staged.n_rows, staged.n_rows + len(self.rows))
            table = _chunk_table(self.rows, self.sentences, ordinals, [sorted(_lookup(row)) for row in self.rows])
            chunk = _write(table, staged.folder / _chunk_name(staged))
        if self.redirects:
            table = pa.table({"origin": list(self.redirects), "target": list(self.redirects.values())})
            redirects = _write(table, staged.folder / _redirects_name(staged))
        noted = StagedChunk(staged.position, done, chunk, redirects, len(self.rows), self.tally)
        add_to_journal(staged.folder / JOURNAL, noted)
        staged.add(noted)
        self._clear()


def read_journal(folder: Path) -> Staged:
    """What an earlier run noted; from the first damaged line or chunk on, nothing counts and all is read again."""
    staged = Staged(folder)
    lines = journal_values(folder / JOURNAL, StagedChunk)
    kept: list[StagedChunk] = []
    for noted in lines:
        if noted is None or staged.done or not _is_next(staged, noted):
            break
        staged.add(noted)
        kept.append(noted)
    if len(kept) < len(lines):
        (folder / JOURNAL).unlink()
        for noted in kept:
            add_to_journal(folder / JOURNAL, noted)
    return staged


def _is_next(staged: Staged, noted: StagedChunk) -> bool:
    """Whether a line of the journal follows on what is there, with its files whole: none was lost or came twice."""
    expected = ((noted.chunk, _chunk_name(staged)), (noted.redirects, _redirects_name(staged)))
    return all(file.path == name and not fault_of(staged.folder, file) for file, name in expected if file)


def _chunk_name(staged: Staged) -> str:
    return f"chunk-{len(staged.chunks):05d}.parquet"


def _redirects_name(staged: Staged) -> str:
    return f"redirects-{len(staged.redirects):05d}.parquet"


def resolve_redirects(staged: Sequence[Staged], *, memory: str) -> None:
    """Give every entity that is named by a redirect the id of the page that it leads to (two steps at most)."""
    files = [source.folder / file.path for source in staged for file in source.redirects]
    if not files:
        return
    connection = connect(memory=memory)
    connection.execute(f"CREATE VIEW redirects AS SELECT * FROM read_parquet({file_list(files)})")
    for source in staged:
        for position, chunk in enumerate(source.chunks):
            rows = _resolved(connection, source.folder / chunk.path, source)
            source.chunks[position] = _write(rows, source.folder / chunk.path.replace("chunk-", "resolved-"))


def _resolved(connection: Any, chunk: Path, source: Staged) -> Any:
    """A chunk with its ids resolved; rows that fall away are taken off the counts of its source."""
    import pyarrow.parquet as pq

    targets = dict(
        connection.execute(
            "WITH ids AS (SELECT DISTINCT unnest([head_id, tail_id]) AS id FROM read_parquet(?)) "
            "SELECT id, coalesce(second.target, first.target) FROM ids JOIN redirects AS first ON first.origin = id "
            "LEFT JOIN redirects AS second ON second.origin = first.target",
            [str(chunk)],
        ).fetchall()
    )
    columns = pq.read_table(chunk).to_pydict()
    fields = zip(*(columns[name] for name in Row._fields), strict=True)
    rows, sentences, ordinals, lookups = [], [], [], []
    for row, sentence, ordinal, lookup in zip(
        map(Row._make, fields), columns["sentence"], columns["ordinal"], columns["lookup"], strict=True
    ):
        head_id, tail_id = (targets.get(i, i) if i else None for i in (row.head_id, row.tail_id))
        moved = row._replace(head_id=head_id, tail_id=tail_id)
        if head_id and head_id == tail_id:
            source.tally.drop("head and tail are the same entity", row.source or "")
            source.n_rows -= 1
            continue
        rows.append(moved)
        sentences.append(sentence)
        ordinals.append(ordinal)
        lookups.append(lookup if moved == row else sorted({*lookup, *_lookup(moved)}))
    return _chunk_table(rows, sentences, ordinals, lookups)


def _chunk_table(
    rows: Sequence[Row], sentences: Sequence[int], ordinals: Sequence[int], lookups: Sequence[Sequence[int]]
) -> Any:
    """Rows as an Arrow table sorted by head, with their keys and their place in the source (`ordinal`)."""
    import pyarrow as pa

    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(Row._fields)}
    columns |= {"sentence": sentences, "ordinal": ordinals, "lookup": lookups}
    columns["head_key"] = [entity_key(row.head_name, row.head_id) for row in rows]
    columns["tail_key"] = [entity_key(row.tail_name, row.tail_id) for row in rows]
    numbers = {name: pa.int32() for name in Row._fields if name.endswith(("_start", "_end"))}
    types = {**numbers, "sentence": pa.uint64(), "ordinal": pa.int64(), "lookup": pa.list_(pa.uint64())}
    arrays = {name: pa.array(list(values), types.get(name, pa.string())) for name, values in columns.items()}
    return pa.table(arrays).sort_by("head_key")


def _lookup(row: Row) -> set[int]:
    return lookup_keys(EntityPair(row.head_name, row.tail_name, row.head_id, row.tail_id))


def _write(table: Any, path: Path) -> StoredFile:
    import pyarrow.parquet as pq

    with whole_file(path) as temporary:
        pq.write_table(table, temporary, row_group_size=8192, compression="zstd")
    return StoredFile.of(path.parent, path)


def forget_others(folder: Path, kept: Sequence[str]) -> None:
    """Remove what was staged of sources that are not part of this build any more."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path)
