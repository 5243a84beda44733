"""Relation lists: a JSON array of objects with `id` (or `pid`), `name` and `description`, a text or a list of lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, StrictInt, StrictStr

from erda.errors import DataError
from erda.files import decode
from erda.text.descriptions import tidy_description
from erda.text.reading import Faults, JsonWalk
from erda.types import Relation


def _joined(lines: object) -> object:
    """Join a list of texts; leave all else to the type."""
    if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
        return "\n".join(lines)
    return lines


@dataclass(frozen=True, slots=True)
class ListedRelation:
    """A relation of the file."""

    id: StrictStr | None = None
    pid: StrictStr | None = None
    name: StrictStr | None = None
    description: Annotated[StrictStr | None, BeforeValidator(_joined)] = None
    index: StrictInt | None = None


def read_relation_list(path: Path) -> list[Relation]:
    """Read relations in the order of the file, or by `index` (from 1) if they have one."""
    faults = Faults(path)
    lines: dict[str, int] = {}
    relations: list[tuple[int, Relation]] = []
    walk = JsonWalk(path)
    for line, value in walk.array():
        try:
            listed = decode(value, ListedRelation)
            relation_id = listed.id or listed.pid
            if relation_id is None:
                raise DataError("'id' is missing.")
            if lines.setdefault(relation_id, line) != line:
                raise DataError(f"relation '{relation_id}' was already listed on line {lines[relation_id]}.")
            description = listed.description or ""
            tidy_description(description)  # raises; the text itself stays, as checksums of datasets cover it
            relation = Relation(relation_id, listed.name or relation_id, description)
            relations.append((len(relations) + 1 if listed.index is None else listed.index, relation))
        except DataError as error:
            faults.add(line, str(error))
    walk.end()
    faults.raise_if_any()
    if not relations:
        raise DataError(f"{path}: no relation is listed.")
    return [relation for _, relation in sorted(relations, key=lambda item: item[0])]
