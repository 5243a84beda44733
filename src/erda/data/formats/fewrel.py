"""FewRel's JSON: an object of relation ids, each with an array of {tokens, h: [name, id, [[index, ...], ...]], t}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from erda.data.formats.reading import Duplicates, Faults, JsonWalk, Reading, read_text
from erda.errors import DataError
from erda.types import Entity, Example, Span

OVERLAPPING = "head and tail overlap in every mention"


def read_fewrel(path: Path) -> Reading:
    """Examples of a file as published.

    Tokens that are only white space are dropped and the indices moved. Of an entity's mentions the first is taken;
    where head and tail overlap, the first two mentions that do not. Rows without such a pair are left out and counted.
    The id of an example is `<file>:<number>`, counted through the file from 1.
    """
    faults, duplicates = Faults(path), Duplicates()
    examples: list[Example] = []
    stem = path.name.split(".")[0]
    n_rows = n_overlapping = 0
    walk = JsonWalk(path, read_text(path))
    for _, relation in walk.fields():
        for line, row in walk.array():
            n_rows += 1
            try:
                example = _example(row, relation, f"{stem}:{n_rows}")
            except DataError as error:
                faults.add(line, f"{relation}, row {n_rows}: {error}")
                continue
            if example is None:
                n_overlapping += 1
                continue
            duplicates.seen(example, n_rows)
            examples.append(example)
    walk.end()
    faults.raise_if_any()
    if not n_rows:
        raise DataError(f"{path}: no examples; expected an object of relation ids with arrays of examples.")
    left_out = {OVERLAPPING: n_overlapping} if n_overlapping else {}
    return Reading(path, "fewrel", tuple(examples), duplicates=tuple(duplicates.found), left_out=left_out)


def _example(row: Any, relation: str, example_id: str) -> Example | None:
    if not isinstance(row, dict) or not isinstance(row.get("tokens"), list):
        raise DataError("expected an object with 'tokens', 'h' and 't'.")
    words = row["tokens"]
    if not words or not all(isinstance(word, str) for word in words):
        raise DataError("'tokens' must be a list of words.")
    position: list[int] = []  # of each token of the file among those that are kept
    kept: list[str] = []
    for word in words:
        position.append(len(kept))
        if word.strip():
            kept.append(word)
    position.append(len(kept))
    head_name, head_id, heads = _entity(row, "h", "head", position)
    tail_name, tail_id, tails = _entity(row, "t", "tail", position)
    for head in heads:
        for tail in tails:
            if head.end <= tail.start or tail.end <= head.start:
                return Example(
                    tuple(kept),
                    Entity(head_name, head, head_id),
                    Entity(tail_name, tail, tail_id),
                    relation,
                    example_id,
                )
    return None


def _entity(row: dict[str, Any], key: str, role: str, position: list[int]) -> tuple[str, str | None, list[Span]]:
    value = row.get(key)
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[0], str):
        raise DataError(f"{role} ('{key}') must be [name, id, mentions].")
    name, entity_id, mentions = value
    if not isinstance(mentions, list) or not mentions:
        raise DataError(f"{role} has no mention.")
    spans = [_mention(mention, role, position) for mention in mentions]
    return name, str(entity_id) if entity_id else None, spans


def _mention(mention: Any, role: str, position: list[int]) -> Span:
    n_tokens = len(position) - 1
    if not isinstance(mention, list) or not mention or any(type(index) is not int for index in mention):
        raise DataError(f"{role} mention must be a list of token indices, got {mention!r}.")
    first, last = min(mention), max(mention)
    if first < 0 or last >= n_tokens:
        raise DataError(f"{role} mention {mention} is out of range ({n_tokens} tokens).")
    if position[first] == position[last + 1]:
        raise DataError(f"{role} mention {mention} covers no word.")
    return Span(position[first], position[last + 1])
