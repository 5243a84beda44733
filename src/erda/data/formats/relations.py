"""Lists of relations: a JSON array of objects with `id` (or `pid`), `name` and `description`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import StrictInt, StrictStr

from erda.errors import DataError
from erda.files import decode
from erda.text.reading import Faults, JsonWalk
from erda.types import Relation


@dataclass(frozen=True, slots=True)
class ListedRelation:
    """A relation as it stands in the file."""

    id: StrictStr | None = None
    pid: StrictStr | None = None
    name: StrictStr | None = None
    description: StrictStr | None = None
    index: StrictInt | None = None


def read_relation_list(path: Path) -> list[Relation]:
    """Relations in the order of the file, or by `index` (from 1) where they have one."""
    faults = Faults(path)
    places: dict[str, int] = {}
    lines: dict[str, int] = {}
    relations: list[Relation] = []
    walk = JsonWalk(path)
    for line, value in walk.array():
        try:
            listed = decode(value, ListedRelation)
            relation_id = listed.id or listed.pid
            if relation_id is None:
                raise DataError("'id' is missing.")
            if lines.setdefault(relation_id, line) != line:
                raise DataError(f"relation '{relation_id}' was already listed on line {lines[relation_id]}.")
            relations.append(Relation(relation_id, listed.name or relation_id, listed.description or ""))
            places[relation_id] = len(relations) if listed.index is None else listed.index
        except DataError as error:
            faults.add(line, str(error))
    walk.end()
    faults.raise_if_any()
    if not relations:
        raise DataError(f"{path}: no relation is listed.")
    return sorted(relations, key=lambda relation: places[relation.id])
