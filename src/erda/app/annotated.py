"""Texts with all their entities and relations, to tune and to evaluate extraction.

    {"text": "Amazon was founded by Jeff Bezos.", "entities": [{"span": [0, 6]}, {"span": [22, 32]}],
     "relations": [{"head": 0, "tail": 1, "relation": "founded by"}]}

A span counts characters and excludes its end. `head` and `tail` are places in `entities`, counted from 0. Mentions of
one entity have the same `id`, or the same name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import StrictInt, StrictStr

from erda.app.answers import Answer
from erda.app.inputs import read_each
from erda.app.texts import TextRow
from erda.data.formats.jsonl_examples import EntityRow, Identifier
from erda.errors import DataError
from erda.files import decode, decode_json
from erda.text.reading import Faults, read_lines

FIRST_LINES = 5  # that are read to recognise a file


@dataclass(frozen=True, slots=True)
class AnnotatedRelation:
    """A relation between two entities of the row."""

    head: StrictInt
    tail: StrictInt
    relation: StrictStr


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A text with its entities and all relations that hold between them; other fields are not read."""

    text: StrictStr
    entities: list[EntityRow]
    relations: list[AnnotatedRelation]
    id: Identifier = None

    def __post_init__(self) -> None:
        for one in self.relations:
            for place in (one.head, one.tail):
                if not 0 <= place < len(self.entities):
                    raise DataError(f"relation '{one.relation}' names entity {place} of {len(self.entities)}.")

    @property
    def row(self) -> TextRow:
        """The text with its entities."""
        return TextRow(self.text, self.id, self.entities)

    def keys(self) -> list[str]:
        """The entity behind each mention: its id, else its name."""
        return [one.id or entity_key(one.name or self.text[one.span[0] : one.span[1]]) for one in self.entities]

    def triples(self) -> set[tuple[str, str, str]]:
        """The annotated triples: entity, relation, entity."""
        keys = self.keys()
        return {(keys[one.head], one.relation, keys[one.tail]) for one in self.relations}

    def key_of(self, answer: Answer, role: str) -> str:
        """The annotated entity that an answer is about, by overlap or by name; else the name of the mention."""
        entity, keys = getattr(answer.example, role), self.keys()
        if answer.place:
            start, end = getattr(answer.place, f"{role}_start"), getattr(answer.place, f"{role}_end")
            spans = [(one.span[0], one.span[1]) for one in self.entities]
            if (start, end) in spans:
                return keys[spans.index((start, end))]
            for (first, last), key in zip(spans, keys, strict=True):
                if first < end and start < last:
                    return key
        return entity_key(entity.resolved or entity.name)


def entity_key(name: str) -> str:
    """A name in lower case with single spaces."""
    return " ".join(name.split()).casefold()


def is_annotated(source: object) -> TypeGuard[str | Path | Sequence[AnnotatedText | Mapping[str, Any]]]:
    """Whether a file, or a list of rows, holds annotated texts."""
    if isinstance(source, str | Path):
        if not Path(source).is_file() or ".json" not in Path(source).name:
            return False
        lines = (line for _, line in read_lines(Path(source)) if line.strip())
        with suppress(ValueError, DataError):
            first = [_has_fields(json.loads(line)) for line in islice(lines, FIRST_LINES)]
            return bool(first) and all(first)
        return False
    return isinstance(source, list | tuple) and bool(source) and all(map(_has_fields, source))


def _has_fields(row: object) -> bool:
    return isinstance(row, AnnotatedText) or (isinstance(row, Mapping) and {"entities", "relations"} <= row.keys())


def read_annotated(source: str | Path | Iterable[AnnotatedText | Mapping[str, Any]]) -> list[AnnotatedText]:
    """Read annotated texts from a JSONL file or a list; report all faults at once."""
    if isinstance(source, str | Path):
        faults = Faults(Path(source))
        found = list(_of_file(Path(source), faults))
        faults.raise_if_any()
        return found
    return read_each(
        source, lambda one: one if isinstance(one, AnnotatedText) else decode(one, AnnotatedText), what="text"
    )


def _of_file(path: Path, faults: Faults) -> Iterator[AnnotatedText]:
    for number, line in read_lines(path, faults):
        if line.strip():
            try:
                yield decode_json(line, AnnotatedText)
            except DataError as fault:
                faults.add(number, str(fault))
