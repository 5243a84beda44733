"""Write answers atomically: JSONL with all fields, CSV and Parquet with fixed columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from erda.data.formats.csv_examples import CSV_END, csv_line
from erda.errors import SettingsError
from erda.files import whole_file, write_lines

COLUMNS = ("id", "line", "text", "head", "tail", "relation", "confidence", "error")
PLACES = ("head_start", "head_end", "tail_start", "tail_end")
MENTIONS = ("head_resolved", "tail_resolved", "head_type", "tail_type")  # the name a pronoun stands for; its type
TEXT_COLUMNS = (*COLUMNS[:5], *PLACES, *MENTIONS, *COLUMNS[5:])  # of answers about plain text
_GROUP = 1 << 16  # rows per row group of a Parquet file
PlainRow = dict[str, Any]
Writer = Callable[[Path, Iterable[PlainRow], Sequence[str]], None]  # the last are the columns of a table


def writer_for(out: Path) -> Writer:
    """Select the writer by the ending of the file name."""
    for ending, writer in WRITERS.items():
        if out.name.endswith(ending):
            return writer
    raise SettingsError(f"--out {out}: expected a name that ends in {', '.join(WRITERS)}.")


def json_line(row: PlainRow) -> str:
    """Convert a row to one line of ASCII JSON."""
    return json.dumps(row)


def _write_jsonl(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    write_lines(out, (json.dumps(row, ensure_ascii=False) for row in rows))


def _write_csv(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    write_lines(out, map(csv_line, _cells(rows, columns)), end=CSV_END)


def _cells(rows: Iterable[PlainRow], columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    yield tuple(columns)
    for row in rows:
        yield tuple("" if row.get(name) is None else row[name] for name in columns)


def _write_parquet(out: Path, rows: Iterable[PlainRow], columns: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {**dict.fromkeys(("line", *PLACES), pa.int64()), "confidence": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    rest = iter(rows)
    with whole_file(out) as temporary, pq.ParquetWriter(temporary, schema) as file:
        while group := list(islice(rest, _GROUP)):
            file.write_table(pa.Table.from_pylist(group, schema=schema))


WRITERS: dict[str, Writer] = {
    ".jsonl": _write_jsonl,
    ".jsonl.gz": _write_jsonl,
    ".csv": _write_csv,
    ".csv.gz": _write_csv,
    ".parquet": _write_parquet,
}
