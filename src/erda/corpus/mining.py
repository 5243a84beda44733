"""Draw pairs of rows from a corpus to train a similarity model, by out-of-core queries.

Positive: same head, same tail. Hard negative: exactly one shared entity, in the same role (the paper, Section 3.4).
The queries read keys and row numbers, never sentences. They shuffle the rows of each group by md5 of row and seed and
pair neighbours, so the cost stays linear even for common entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.sql import file_list

_STEPS = 3  # neighbours tried on either side to find a row with another entity


@dataclass(frozen=True, slots=True, eq=False)
class RowPairs:
    """Pairs of rows `first[i]`, `second[i]`, sorted by the random number `place`; all arrays [n_pairs].

    `shared[i]` is the shared role: "both" for positive pairs, "head" or "tail" for hard negatives.
    """

    first: np.ndarray
    second: np.ndarray
    shared: np.ndarray
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


def positive_pairs(
    connection: Any, parts: Sequence[Path], *, seed: int, limit: int | None = None, max_per_pair: int = 3
) -> RowPairs:
    """Pair rows with the same head and tail: each row with the next of its group, at most `max_per_pair` per group.

    `limit` draws that many pairs at random.
    """
    query = f"""
        WITH shuffled AS (
            SELECT row, hash(head_key, tail_key) AS pair, {_place("both", seed)} AS place
            FROM read_parquet({file_list(list(parts))})
        ),
        neighbours AS (
            SELECT row AS first, place, lead(row) OVER here AS second, row_number() OVER here AS nth
            FROM shuffled WINDOW here AS (PARTITION BY pair ORDER BY place, row)
        )
        SELECT first, second, 'both' AS shared, place FROM neighbours
        WHERE second IS NOT NULL AND nth <= {max_per_pair:d}
    """
    return _drawn(connection, query, limit)


def hard_negatives(
    connection: Any,
    parts: Sequence[Path],
    *,
    seed: int,
    limit: int | None = None,
    anchors: Sequence[int] | np.ndarray | None = None,
) -> RowPairs:
    """Pair rows that share the head but not the tail, or the tail but not the head.

    With `anchors`, `first` contains only these rows, each at most once per role: negatives for given positives.
    """
    import pyarrow as pa

    chosen = ""
    if anchors is not None:
        connection.register("anchors", pa.table({"row": pa.array(np.unique(np.asarray(anchors, np.int64)))}))
        chosen = "SEMI JOIN anchors ON anchors.row = first"
    either = f"{_sharing('head', 'tail', parts, seed)} UNION ALL {_sharing('tail', 'head', parts, seed)}"
    return _drawn(connection, f"SELECT * FROM ({either}) AS negatives {chosen} WHERE second IS NOT NULL", limit)


def _sharing(role: str, other: str, parts: Sequence[Path], seed: int) -> str:
    """SQL that pairs each row with the nearest row of its shuffled group whose other entity differs."""
    steps = [f"{step}({{column}}, {n}) OVER here" for n in range(1, _STEPS + 1) for step in ("lead", "lag")]
    near = ", ".join(
        f"{step.format(column='row')} AS row_{i}, {step.format(column='other')} AS other_{i}"
        for i, step in enumerate(steps)
    )
    choice = " ".join(f"WHEN other_{i} <> other THEN row_{i}" for i in range(len(steps)))
    return f"""(
        WITH shuffled AS (
            SELECT row, hash({role}_key) AS same, hash({other}_key) AS other, {_place(role, seed)} AS place
            FROM read_parquet({file_list(list(parts))})
        ),
        neighbours AS (
            SELECT row, other, place, {near}
            FROM shuffled WINDOW here AS (PARTITION BY same ORDER BY place, row)
        )
        SELECT row AS first, CASE {choice} END AS second, '{role}' AS shared, place FROM neighbours
    )"""


def _place(salt: str, seed: int) -> str:
    """SQL of a pseudo-random 64-bit number of a row, determined by salt and seed."""
    return f"md5_number_lower(concat_ws(':', '{salt}', {seed:d}, row))"


def _drawn(connection: Any, query: str, limit: int | None) -> RowPairs:
    limited = f"LIMIT {limit:d}" if limit is not None else ""
    columns = connection.execute(f"SELECT * FROM ({query}) ORDER BY place, first, shared {limited}").fetchnumpy()
    return RowPairs(**{name: np.asarray(values) for name, values in columns.items()})
