"""FewRel's JSON: an object that maps relation ids to arrays of {tokens, h: [name, id, [[index, ...], ...]], t}."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictInt, StrictStr

from erda.data.formats.row_collector import Reading, RowCollector
from erda.errors import DataError
from erda.files import decode
from erda.text.reading import JsonWalk
from erda.types import Entity, Example, Span

_EXPECTED = "Expected {tokens: [word, ...], h: [name, id, [[index, ...], ...]], t: [name, id, ...]}."
OVERLAPPING = "head and tail overlap in every mention"
Indices = Annotated[list[StrictInt], Field(min_length=1)]
Mentioned = tuple[StrictStr, StrictStr | StrictInt | None, Annotated[list[Indices], Field(min_length=1)]]


@dataclass(frozen=True, slots=True)
class FewRelRow:
    """A row of the file."""

    tokens: Annotated[list[StrictStr], Field(min_length=1)]
    h: Mentioned
    t: Mentioned


def read_fewrel(path: Path, no_relation: Collection[str] = ()) -> Reading:
    """Read the examples of a file as published.

    White-space tokens are dropped and the indices adjusted. The first mention of each entity is used; if those overlap,
    the first two mentions that do not. Rows without such a pair are skipped and counted. The id of an example is
    `<file>:<number>`, numbered from 1 through the file.
    """
    rows = RowCollector(path, "fewrel", no_relation)
    stem = path.name.split(".")[0]
    walk = JsonWalk(path)
    for _, relation in walk.fields():
        for line, value in walk.array():
            number = rows.n_rows + 1
            read = partial(_example, value, relation, f"{stem}:{number}")
            rows.add(line, read, number=number, where=f"{relation}, row {number}: ")
    walk.end()
    return rows.reading("an object that maps relation ids to arrays of examples")


def _example(value: Any, relation: str, example_id: str) -> Example | str:
    row = decode(value, FewRelRow, remedy=_EXPECTED)
    position: list[int] = []  # index of each original token among the kept tokens
    kept: list[str] = []
    for word in row.tokens:
        position.append(len(kept))
        if word.strip():
            kept.append(word)
    position.append(len(kept))
    heads, tails = (
        [Entity(name, _span(indices, role, position), str(entity_id) if entity_id else None) for indices in mentions]
        for role, (name, entity_id, mentions) in (("head", row.h), ("tail", row.t))
    )
    for head, tail in product(heads, tails):
        if head.span.end <= tail.span.start or tail.span.end <= head.span.start:
            return Example(tuple(kept), head, tail, relation, example_id)
    return OVERLAPPING


def _span(indices: list[int], role: str, position: list[int]) -> Span:
    n_tokens = len(position) - 1
    first, last = min(indices), max(indices)
    if first < 0 or last >= n_tokens:
        raise DataError(f"{role} mention {indices} is out of range ({n_tokens} tokens).")
    if position[first] == position[last + 1]:
        raise DataError(f"{role} mention {indices} covers no word.")
    return Span(position[first], position[last + 1])
