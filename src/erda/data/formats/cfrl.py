"""The published CFRL splits: tab-separated lines, one example each.

The fields are: relation index, candidate relation indices, sentence, head, head token indices, tail, tail token
indices, head id, tail id.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from erda.data.formats.row_collector import Reading, RowCollector
from erda.errors import DataError
from erda.text.reading import read_lines
from erda.types import Entity, Example, Span

N_FIELDS = 9


def read_cfrl(path: Path, relations: Mapping[str, str] | None = None) -> Reading:
    """Read examples and candidate lists of a split file as published: duplicates are counted and kept.

    `relations` maps the file's relation indices ("1" to "80") to relation ids; without it, the indices are the ids.
    The id of an example is `<folder>/<file>:<line>`, for example `5-shot/train_0:17`.
    """
    rows = RowCollector(path, "cfrl")
    candidates: list[tuple[str, ...]] = []
    prefix = f"{path.parent.name}/{path.name.split('.')[0]}"

    def example(number: int, line: str) -> Example:
        found, listed = _parse(line, f"{prefix}:{number}", relations)
        candidates.append(listed)
        return found

    for number, line in read_lines(path, rows.faults):
        rows.add(number, partial(example, number, line))
    return rows.reading(f"tab-separated lines of {N_FIELDS} fields", tuple(candidates))


def _parse(line: str, example_id: str, relations: Mapping[str, str] | None) -> tuple[Example, tuple[str, ...]]:
    fields = line.split("\t")
    if len(fields) != N_FIELDS:
        raise DataError(f"{len(fields)} tab-separated fields; expected {N_FIELDS}.")
    gold, listed, sentence, head, head_at, tail, tail_at, head_id, tail_id = fields
    tokens = tuple(sentence.split())
    if not tokens:
        raise DataError("the sentence is empty.")
    relation = _relation(gold, relations)
    example = Example(
        tokens,
        Entity(head, _span(head_at, "head"), head_id or None),
        Entity(tail, _span(tail_at, "tail"), tail_id or None),
        relation,
        example_id,
    )
    return example, tuple(_relation(index, relations) for index in listed.split() if index != gold)


def _relation(index: str, relations: Mapping[str, str] | None) -> str:
    if relations is None:
        if not index.isdecimal():
            raise DataError(f"relation index {index!r} is not a number.")
        return index
    try:
        return relations[index]
    except KeyError:
        raise DataError(f"unknown relation index {index!r}; known: 1 to {len(relations)}.") from None


def _span(indices: str, role: str) -> Span:
    try:
        numbers = [int(index) for index in indices.split()]
    except ValueError:
        raise DataError(f"{role} token indices {indices!r} are not numbers.") from None
    if not numbers:
        raise DataError(f"{role} has no token indices.")
    first, last = numbers[0], numbers[-1]
    if numbers != list(range(first, first + len(numbers))):
        raise DataError(f"{role} token indices {indices!r} are not consecutive.")
    return Span(first, last + 1)
