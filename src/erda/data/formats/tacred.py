"""TACRED's JSON as the LDC ships it: an array of objects with `token`, `subj_start`, `subj_end` and so on.

Ends are inclusive.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictInt, StrictStr

from erda.data.formats.row_collector import Reading, RowCollector
from erda.errors import DataError
from erda.files import decode
from erda.text.reading import JsonWalk
from erda.types import Entity, Example, Span

# The LDC's files write brackets as the Penn Treebank does.
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


@dataclass(frozen=True, slots=True)
class TacredRow:
    """A row of the file; other fields are ignored."""

    token: Annotated[list[Annotated[StrictStr, Field(pattern=r"\S")]], Field(min_length=1)]
    subj_start: StrictInt
    subj_end: StrictInt
    obj_start: StrictInt
    obj_end: StrictInt
    relation: Annotated[StrictStr, Field(min_length=1)]
    subj_type: StrictStr | None = None
    obj_type: StrictStr | None = None


def read_tacred(path: Path, no_relation: Collection[str] = ()) -> Reading:
    """Read `train.json`, `dev.json` or `test.json`. Rows with "no_relation" go to `Reading.unrelated`.

    The subject is the head, the object the tail. Duplicates are counted and kept.
    """
    rows = RowCollector(path, "tacred", no_relation)
    stem = path.name.split(".")[0]
    walk = JsonWalk(path)
    for line, value in walk.array():
        number = rows.n_rows + 1
        rows.add(line, partial(_example, value, f"{stem}:{number}"), number=number, where=f"row {number}: ")
    walk.end()
    return rows.reading("an array of objects with 'token', 'subj_start' and so on")


def _example(value: Any, example_id: str) -> Example:
    row = decode(value, TacredRow)
    tokens = tuple(_BRACKETS.get(word, word) for word in row.token)
    head = _entity(tokens, "head", "subj", row.subj_start, row.subj_end)
    tail = _entity(tokens, "tail", "obj", row.obj_start, row.obj_end)
    head, tail = replace(head, type=row.subj_type or None), replace(tail, type=row.obj_type or None)
    return Example(tokens, head, tail, row.relation, example_id)


def _entity(tokens: tuple[str, ...], role: str, prefix: str, start: int, end: int) -> Entity:
    if not 0 <= start <= end < len(tokens):
        raise DataError(f"{role} ({prefix}_start {start}, {prefix}_end {end}) is out of range ({len(tokens)} tokens).")
    return Entity(" ".join(tokens[start : end + 1]), Span(start, end + 1))
