"""TACRED's JSON as the LDC ships it: an array of objects with `token`, `subj_start`, `subj_end`, ...; ends included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from erda.data.formats.reading import Duplicates, Faults, JsonWalk, Reading, is_unrelated, read_text
from erda.errors import DataError
from erda.types import Entity, Example, Span

# the LDC's files write brackets as the Penn Treebank does
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def read_tacred(path: Path) -> Reading:
    """Examples of `train.json`, `dev.json` or `test.json`. Rows of `no_relation` go to `Reading.unrelated`.

    The subject is the head, the object the tail. A duplicate is counted and kept.
    """
    faults, duplicates = Faults(path), Duplicates()
    examples: list[Example] = []
    unrelated: list[Example] = []
    n_rows = 0
    walk = JsonWalk(path, read_text(path))
    stem = path.name.split(".")[0]
    for line, row in walk.array():
        n_rows += 1
        try:
            example = _example(row, f"{stem}:{n_rows}")
        except DataError as error:
            faults.add(line, f"row {n_rows}: {error}")
            continue
        if is_unrelated(example.relation):
            unrelated.append(example)
            continue
        duplicates.seen(example, n_rows)
        examples.append(example)
    walk.end()
    faults.raise_if_any()
    if not n_rows:
        raise DataError(f"{path}: no examples; expected an array of objects with 'token', 'subj_start' and so on.")
    return Reading(path, "tacred", tuple(examples), tuple(unrelated), duplicates=tuple(duplicates.found))


def _example(row: Any, example_id: str) -> Example:
    if not isinstance(row, dict):
        raise DataError(
            "expected an object with 'token', 'subj_start', 'subj_end', 'obj_start', 'obj_end', 'relation'."
        )
    words, relation = row.get("token"), row.get("relation")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise DataError("'token' must be a list of words.")
    if not isinstance(relation, str) or not relation:
        raise DataError(f"'relation' must be text, got {relation!r}.")
    tokens = tuple(_BRACKETS.get(str(word), str(word)) for word in words)
    head, tail = (_entity(row, prefix, role, tokens) for prefix, role in (("subj", "head"), ("obj", "tail")))
    return Example(tokens, head, tail, relation, example_id)


def _entity(row: dict[str, Any], prefix: str, role: str, tokens: tuple[str, ...]) -> Entity:
    start, end = row.get(f"{prefix}_start"), row.get(f"{prefix}_end")
    if type(start) is not int or type(end) is not int:
        raise DataError(f"{role}: '{prefix}_start' and '{prefix}_end' must be whole numbers.")
    if not 0 <= start <= end < len(tokens):
        raise DataError(f"{role} ({prefix}_start {start}, {prefix}_end {end}) is out of range ({len(tokens)} tokens).")
    return Entity(" ".join(tokens[start : end + 1]), Span(start, end + 1))
