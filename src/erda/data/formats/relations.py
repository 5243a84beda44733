"""Lists of relations: a JSON array of objects with `id` (or `pid`), `name` and `description`."""

from __future__ import annotations

from pathlib import Path

from erda.data.formats.reading import Faults, JsonWalk, read_text
from erda.errors import DataError
from erda.types import Relation


def read_relation_list(path: Path) -> list[Relation]:
    """Relations in the order of the file, or by `index` (from 1) where they have one."""
    faults = Faults(path)
    found: list[tuple[int, Relation]] = []
    ids: dict[str, int] = {}
    walk = JsonWalk(path, read_text(path))
    for line, value in walk.array():
        try:
            relation, index = _relation(value)
            if ids.setdefault(relation.id, line) != line:
                raise DataError(f"relation '{relation.id}' was already listed on line {ids[relation.id]}.")
        except DataError as error:
            faults.add(line, str(error))
            continue
        found.append((len(found) + 1 if index is None else index, relation))
    walk.end()
    faults.raise_if_any()
    if not found:
        raise DataError(f"{path}: no relation is listed.")
    return [relation for _, relation in sorted(found, key=lambda pair: pair[0])]


def _relation(value: object) -> tuple[Relation, int | None]:
    if not isinstance(value, dict):
        raise DataError("expected an object with 'id', 'name' and 'description'.")
    relation_id = value.get("id", value.get("pid"))
    name, description, index = value.get("name", relation_id), value.get("description") or "", value.get("index")
    if not all(isinstance(text, str) for text in (relation_id, name, description)):
        raise DataError("'id', 'name' and 'description' must be text.")
    if index is not None and type(index) is not int:
        raise DataError(f"'index' must be a whole number, got {index!r}.")
    return Relation(str(relation_id), str(name), str(description)), index
