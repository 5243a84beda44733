"""Formats of published datasets: CFRL splits, FewRel's JSON, TACRED's JSON as the LDC ships it.

CFRL: tab-separated lines, one example each. The fields are: relation index, candidate relation indices, sentence, head,
head token indices, tail, tail token indices, head id, tail id.

FewRel: an object that maps relation ids to arrays of {tokens, h: [name, id, [[index, ...], ...]], t}.

TACRED: an array of objects with `token`, `subj_start`, `subj_end` and so on; ends are inclusive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictInt, StrictStr

from erda.data.formats.row_collector import Format, Reading, SourceRow, collect_rows
from erda.errors import DataError
from erda.files import decode
from erda.text.reading import Faults, JsonWalk, read_lines
from erda.types import Entity, Example, Span

N_FIELDS = 9
_FEWREL = "Expected {tokens: [word, ...], h: [name, id, [[index, ...], ...]], t: [name, id, ...]}."
ALL_OVERLAP = "head and tail overlap in every mention"
Indices = Annotated[list[StrictInt], Field(min_length=1)]
Mentioned = tuple[StrictStr, StrictStr | StrictInt | None, Annotated[list[Indices], Field(min_length=1)]]
# The LDC's files write brackets as the Penn Treebank does.
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
Candidates = list[tuple[str, ...]]  # of each example


def read_cfrl(path: Path, relations: Mapping[str, str]) -> Reading:
    """Read a split file with its candidate lists. `relations` maps the file's relation indices ("1" to "80") to ids."""
    candidates: Candidates = []
    rows = partial(cfrl_rows, relations=relations, candidates=candidates)
    return replace(collect_rows(path, replace(CFRL, rows=rows)), candidates=tuple(candidates))


def cfrl_rows(
    path: Path, faults: Faults, relations: Mapping[str, str] | None = None, candidates: Candidates | None = None
) -> Iterator[SourceRow]:
    """Yield the rows of a split file; without `relations`, the relation indices are the ids.

    Reading a row appends its candidate list to `candidates`. The id of an example is `<folder>/<file>:<line>`, for
    example `5-shot/train_0:17`.
    """
    prefix = f"{path.parent.name}/{path.name.split('.')[0]}"
    for number, line in read_lines(path, faults):
        yield SourceRow(number, partial(_cfrl_example, line, f"{prefix}:{number}", relations, candidates))


CFRL = Format("cfrl", cfrl_rows, f"tab-separated lines of {N_FIELDS} fields", published=True)


def _cfrl_example(
    line: str, example_id: str, relations: Mapping[str, str] | None, candidates: Candidates | None
) -> Example:
    fields = line.split("\t")
    if len(fields) != N_FIELDS:
        raise DataError(f"{len(fields)} tab-separated fields; expected {N_FIELDS}.")
    gold, listed, sentence, head, head_at, tail, tail_at, head_id, tail_id = fields
    tokens = tuple(sentence.split())
    if not tokens:
        raise DataError("the sentence is empty.")
    relation = _indexed_relation(gold, relations)
    example = Example(
        tokens,
        Entity(head, _cfrl_span(head_at, "head"), head_id or None),
        Entity(tail, _cfrl_span(tail_at, "tail"), tail_id or None),
        relation,
        example_id,
    )
    others = tuple(_indexed_relation(index, relations) for index in listed.split() if index != gold)
    if candidates is not None:
        candidates.append(others)
    return example


def _indexed_relation(index: str, relations: Mapping[str, str] | None) -> str:
    if relations is None:
        if not index.isdecimal():
            raise DataError(f"relation index {index!r} is not a number.")
        return index
    try:
        return relations[index]
    except KeyError:
        raise DataError(f"unknown relation index {index!r}; known: 1 to {len(relations)}.") from None


def _cfrl_span(indices: str, role: str) -> Span:
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


@dataclass(frozen=True, slots=True)
class FewRelRow:
    """A row of the file."""

    tokens: Annotated[list[StrictStr], Field(min_length=1)]
    h: Mentioned
    t: Mentioned


def fewrel_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield the rows of a file.

    White-space tokens are dropped and the indices adjusted. The first mention of each entity is used; if those overlap,
    the first two mentions that do not. Rows without such a pair are skipped and counted. The id of an example is
    `<file>:<number>`, numbered from 1 through the file.
    """
    numbers = count(1)
    stem = path.name.split(".")[0]
    walk = JsonWalk(path)
    for _, relation in walk.fields():
        for line, value in walk.array():
            number = next(numbers)
            read = partial(_fewrel_example, value, relation, f"{stem}:{number}")
            yield SourceRow(line, read, f"{relation}, row {number}: ", number)
    walk.end()


def _fewrel_example(value: Any, relation: str, example_id: str) -> Example | str:
    row = decode(value, FewRelRow, remedy=_FEWREL)
    position: list[int] = []  # index of each original token among the kept tokens
    kept: list[str] = []
    for word in row.tokens:
        position.append(len(kept))
        if word.strip():
            kept.append(word)
    position.append(len(kept))
    heads, tails = (
        [
            Entity(name, _fewrel_span(indices, role, position), str(entity_id) if entity_id else None)
            for indices in mentions
        ]
        for role, (name, entity_id, mentions) in (("head", row.h), ("tail", row.t))
    )
    for head, tail in product(heads, tails):
        if head.span.end <= tail.span.start or tail.span.end <= head.span.start:
            return Example(tuple(kept), head, tail, relation, example_id)
    return ALL_OVERLAP


def _fewrel_span(indices: list[int], role: str, position: list[int]) -> Span:
    n_tokens = len(position) - 1
    first, last = min(indices), max(indices)
    if first < 0 or last >= n_tokens:
        raise DataError(f"{role} mention {indices} is out of range ({n_tokens} tokens).")
    if position[first] == position[last + 1]:
        raise DataError(f"{role} mention {indices} covers no word.")
    return Span(position[first], position[last + 1])


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


def tacred_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield the rows of `train.json`, `dev.json` or `test.json`. The subject is the head, the object the tail."""
    stem = path.name.split(".")[0]
    walk = JsonWalk(path)
    for number, (line, value) in enumerate(walk.array(), 1):
        yield SourceRow(line, partial(_tacred_example, value, f"{stem}:{number}"), f"row {number}: ", number)
    walk.end()


def _tacred_example(value: Any, example_id: str) -> Example:
    row = decode(value, TacredRow)
    tokens = tuple(_BRACKETS.get(word, word) for word in row.token)
    head = _tacred_entity(tokens, "head", "subj", row.subj_start, row.subj_end)
    tail = _tacred_entity(tokens, "tail", "obj", row.obj_start, row.obj_end)
    head, tail = replace(head, type=row.subj_type or None), replace(tail, type=row.obj_type or None)
    return Example(tokens, head, tail, row.relation, example_id)


def _tacred_entity(tokens: tuple[str, ...], role: str, prefix: str, start: int, end: int) -> Entity:
    if not 0 <= start <= end < len(tokens):
        raise DataError(f"{role} ({prefix}_start {start}, {prefix}_end {end}) is out of range ({len(tokens)} tokens).")
    return Entity(" ".join(tokens[start : end + 1]), Span(start, end + 1))
