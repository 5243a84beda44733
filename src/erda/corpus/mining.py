"""Pairs of sentences to train a similarity model on, drawn from a corpus by queries that run out of core.

Positive: same head, same tail. Hard negative: exactly one shared entity, in the same role (the paper, Section 3.4).
Nothing of a sentence is read, only keys and row numbers; groups are put in an order that depends on the seed alone
(md5 of row and seed), and neighbours in that order are taken, so no entity's rows are ever multiplied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from erda.corpus.sql import file_list

_STEPS = 3  # how many neighbours are tried on either side for a row with another entity


@dataclass(frozen=True, slots=True, eq=False)
class RowPairs:
    """Pairs of rows: `first[i]` goes with `second[i]`, all [n_pairs]. `shared[i]` says what they share.

    "both" for positive pairs, "head" or "tail" for hard negatives. They are sorted by `place`, a random number.
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
    """Rows with the same head and the same tail, each row with the next of its group: at most `max_per_pair` a group.

    `limit` rows are drawn at random from all that there are.
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
    """Rows that share the head but not the tail, or the tail but not the head.

    With `anchors`, `first` is drawn from these rows only, each at most once a role: negatives for given positives.
    """
    import pyarrow as pa

    chosen = ""
    if anchors is not None:
        connection.register("anchors", pa.table({"row": pa.array(np.unique(np.asarray(anchors, np.int64)))}))
        chosen = "SEMI JOIN anchors ON anchors.row = first"
    either = f"{_sharing('head', 'tail', parts, seed)} UNION ALL {_sharing('tail', 'head', parts, seed)}"
    return _drawn(connection, f"SELECT * FROM ({either}) AS negatives {chosen} WHERE second IS NOT NULL", limit)


def _sharing(role: str, other: str, parts: Sequence[Path], seed: int) -> str:
    """Each row with the nearest row of its group, in random order, whose other entity differs."""
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
    """SQL: a random-looking 64-bit number of a row that depends on salt and seed and on nothing else."""
    return f"md5_number_lower(concat_ws(':', '{salt}', {seed:d}, row))"


def _drawn(connection: Any, query: str, limit: int | None) -> RowPairs:
    limited = f"LIMIT {limit:d}" if limit is not None else ""
    columns = connection.execute(f"SELECT * FROM ({query}) ORDER BY place, first, shared {limited}").fetchnumpy()
    return RowPairs(**{name: np.asarray(values) for name, values in columns.items()})
