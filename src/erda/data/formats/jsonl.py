"""Our own format: one JSON object a line, plain or gzip.

`tokens` with spans that count tokens, or `text` with spans that count characters; ends excluded in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from erda.data.formats.reading import Duplicates, Faults, Reading, is_unrelated, read_lines
from erda.errors import DataError, unknown_name
from erda.types import Entity, Example, Span

_TOKEN = re.compile(r"\w+|[^\w\s]")


def read_jsonl(path: Path, relations: Collection[str] | None = None) -> Reading:
    """Examples of a JSONL file. A duplicate is kept once; both its lines are in `Reading.duplicates`.

    `relations` are the known relation ids; any other is a fault. A row without `id` is named `<file>:<line>`.
    """
    faults, duplicates = Faults(path), Duplicates()
    examples: list[Example] = []
    unrelated: list[Example] = []
    ids: dict[str, int] = {}
    stem = path.name.split(".")[0]
    n_rows = 0
    for number, line in read_lines(path, faults):
        if not line.strip():
            continue
        n_rows += 1
        try:
            row = _row(line)
            example = example_from_json(row, default_id=f"{stem}:{number}")
            none = is_unrelated(example.relation)
            if relations is not None and not none and example.relation not in relations:
                raise DataError(_unlisted(str(example.relation), relations))
            if ids.setdefault(example.id, number) != number:
                raise DataError(f"id {example.id!r} was already used on line {ids[example.id]}.")
        except DataError as error:
            faults.add(number, str(error))
            continue
        if not duplicates.seen(example, number):
            (unrelated if none else examples).append(example)
    faults.raise_if_any()
    if not n_rows:
        raise DataError(f"{path}: the file is empty; expected one JSON object a line.")
    return Reading(path, "jsonl", tuple(examples), tuple(unrelated), duplicates=tuple(duplicates.found))


def example_to_json(example: Example) -> dict[str, Any]:
    """An example as a JSON object of our own format; `example_from_json` gives it back."""
    return {
        "id": example.id,
        "tokens": list(example.tokens),
        "head": _entity_to_json(example.head),
        "tail": _entity_to_json(example.tail),
        "relation": example.relation,
        "source": example.source,
    }


def example_from_json(row: Mapping[str, Any], *, default_id: str = "") -> Example:
    """The example that a JSON object of our own format describes; says what is wrong with one that is not."""
    if ("tokens" in row) == ("text" in row):
        raise DataError(
            "give either 'tokens' or 'text'" + (", not both." if "tokens" in row else "; both are missing.")
        )
    if "tokens" in row:
        tokens = _tokens(row["tokens"])
        head, tail = (_entity(row, role, tokens) for role in ("head", "tail"))
    else:
        tokens, head, tail = _from_text(row)
    return Example(
        tokens,
        head,
        tail,
        _optional_text(row, "relation"),
        _optional_text(row, "id") or default_id,
        _optional_text(row, "source"),
    )


def tokenise(text: str) -> list[str]:
    """Words and single punctuation marks.

    >>> tokenise("Oslo's mayor, Anne.")
    ['Oslo', "'", 's', 'mayor', ',', 'Anne', '.']
    """
    return _TOKEN.findall(text)


def _row(line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} (column {error.colno}).") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}.") from None
    if "\\u" in line and _has_lone_surrogate(row):
        raise DataError("not text: half of a surrogate pair (\\ud800 to \\udfff) stands alone.")
    if not isinstance(row, dict):
        raise DataError(f"expected a JSON object, got {_kind(row)}.")
    return row


def _has_lone_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _tokens(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise DataError(f"'tokens' must be a list of words, got {_kind(value)}.")
    for position, token in enumerate(value):
        if not isinstance(token, str) or not token:
            raise DataError(f"token {position} must be text, got {token!r}.")
    return tuple(value)


def _entity(row: Mapping[str, Any], role: str, tokens: tuple[str, ...]) -> Entity:
    value, (start, end) = _entity_object(row, role)
    span = _in_role(role, start, end)
    mention = " ".join(tokens[start:end])
    if end <= len(tokens) and not mention.strip():
        raise DataError(f"{role} span ({start}, {end}) covers no word.")
    return Entity(_optional_text(value, "name", role) or mention, span, _optional_text(value, "id", role))


def _from_text(row: Mapping[str, Any]) -> tuple[tuple[str, ...], Entity, Entity]:
    """Tokens and entities of a row with `text`; the borders of an entity are always borders of tokens."""
    text = row["text"]
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"'text' must be a sentence, got {_kind(text)}.")
    marked = {role: _entity_object(row, role) for role in ("head", "tail")}
    for role, (_, (start, end)) in marked.items():
        _in_role(role, start, end)
        if end > len(text):
            raise DataError(f"{role} span ({start}, {end}) ends after the last character ({len(text)} characters).")
        if not tokenise(text[start:end]):
            raise DataError(f"{role} span ({start}, {end}) covers no word.")
    cuts = sorted({0, len(text), *(offset for _, offsets in marked.values() for offset in offsets)})
    tokens: list[str] = []
    token_at = {0: 0}
    for left, right in pairwise(cuts):
        tokens += tokenise(text[left:right])
        token_at[right] = len(tokens)
    entities = [
        Entity(
            _optional_text(value, "name", role) or text[start:end].strip(),
            Span(token_at[start], token_at[end]),
            _optional_text(value, "id", role),
        )
        for role, (value, (start, end)) in marked.items()
    ]
    return tuple(tokens), entities[0], entities[1]


def _entity_object(row: Mapping[str, Any], role: str) -> tuple[Mapping[str, Any], tuple[int, int]]:
    value = row.get(role)
    if not isinstance(value, dict):
        raise DataError(f"'{role}' must be an object with a 'span', got {_kind(value)}.")
    span = value.get("span")
    if not isinstance(span, list) or len(span) != 2 or any(type(offset) is not int for offset in span):
        raise DataError(f"{role} span must be two numbers [start, end), got {span!r}.")
    return value, (span[0], span[1])


def _in_role(role: str, start: int, end: int) -> Span:
    try:
        return Span(start, end)
    except DataError as error:
        raise DataError(f"{role} {error}") from None


def _optional_text(value: Mapping[str, Any], key: str, role: str | None = None) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise DataError(f"{f'{role} ' if role else ''}'{key}' must be text or null, got {_kind(text)}.")
    return text or None


def _entity_to_json(entity: Entity) -> dict[str, Any]:
    return {"name": entity.name, "id": entity.id, "span": [entity.span.start, entity.span.end]}


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true/false", type(None): "nothing"}
    if value in ([], ""):
        return f"empty {'list' if value == [] else 'text'}"
    return names.get(type(value), f"{value!r}")


def _unlisted(relation: str, relations: Collection[str]) -> str:
    if len(relations) > 100:
        return f"unknown relation {relation!r}; it is none of the {len(relations)} listed ones."
    message = unknown_name("relation", relation, relations)
    return message[0].lower() + message[1:]
