"""Write answers atomically: JSONL with all fields; CSV and Parquet with fixed columns, then those of the input.

A pair with several relations is one line of JSONL and one row of a table per relation. The fields of an input row are
an object `input` in JSONL and columns `input_NAME` in tables, where a value other than text is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
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
Rows = Callable[[], Iterable[PlainRow]]  # can be read several times
Writer = Callable[[Path, Rows, Sequence[str]], None]  # the last are the columns of a table
INPUT = "input"


def writer_for(out: Path) -> Writer:
    """Select the writer by the ending of the file name."""
    for ending, writer in WRITERS.items():
        if out.name.endswith(ending):
            if writer is _write_parquet and find_spec("pyarrow") is None:
                raise SettingsError(
                    f"--out {out}: Parquet needs pyarrow: pip install pyarrow. Or write .csv or .jsonl."
                )
            return writer
    raise SettingsError(f"--out {out}: expected a name that ends in {', '.join(WRITERS)}.")


def rows_for(out: Path, rows: Rows) -> Rows:
    """The rows of a file: a table has one for each relation of a pair."""
    if out.name.endswith((".jsonl", ".jsonl.gz")):
        return rows
    return lambda: (one for row in rows() for one in by_relation(row))


def json_line(row: PlainRow) -> str:
    """Convert a row to one line of ASCII JSON."""
    return json.dumps(row)


def by_relation(row: PlainRow) -> Iterator[PlainRow]:
    """Yield a row for each relation that holds, with its confidence; the row itself if there are not several."""
    if "relations" not in row:
        yield row
        return
    confidences = {one["relation"]: one["confidence"] for one in row["ranked"]}
    for relation in row["relations"]:
        yield row | {"relation": relation, "confidence": confidences[relation]}


def _write_jsonl(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    write_lines(out, (json.dumps(row, ensure_ascii=False) for row in rows()))


def _write_csv(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    write_lines(out, map(csv_line, _cells(map(_flat, rows()), (*columns, *_input_columns(rows)))), end=CSV_END)


def _input_columns(rows: Rows) -> list[str]:
    """The columns of the input in the order of their first occurrence."""
    return list(dict.fromkeys(f"{INPUT}_{name}" for row in rows() for name in row.get(INPUT, ())))


def _flat(row: PlainRow) -> PlainRow:
    """A row with the fields of the input as columns."""
    given = row.get(INPUT, {})
    return row | {
        f"{INPUT}_{name}": one if one is None or isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for name, one in given.items()
    }


def _cells(rows: Iterable[PlainRow], columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    yield tuple(columns)
    for row in rows:
        yield tuple("" if row.get(name) is None else row[name] for name in columns)


def _write_parquet(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {**dict.fromkeys(("line", *PLACES), pa.int64()), "confidence": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in (*columns, *_input_columns(rows))])
    rest = map(_flat, rows())
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
