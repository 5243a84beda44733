"""Written patterns of 93 Wikidata relations: five sentences each that state the relation between X and Y.

They were written for this project from the name and the description of each relation. No sentence of a dataset was
consulted. The setting `patterns` of a stream adds them to the descriptions, as lines.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from importlib.resources import files

from erda.data.streams import TaskStream, TaskWithTests
from erda.errors import StreamError
from erda.types import Relation

PATTERNS = "patterns.json"


@cache
def written_patterns() -> dict[str, tuple[str, ...]]:
    """Return the patterns of each relation, by its Wikidata id."""
    found = json.loads(files("erda.data").joinpath(PATTERNS).read_text(encoding="utf-8"))
    return {relation: tuple(lines) for relation, lines in found.items()}


def described(relation: Relation) -> Relation:
    """Add the written patterns of a relation to its description."""
    return replace(relation, description="\n".join([relation.description, *written_patterns().get(relation.id, ())]))


def with_patterns(stream: TaskStream) -> TaskStream:
    """Return the stream with written patterns in the descriptions of its relations; its checksum covers them."""
    used = {one.id: written_patterns()[one.id] for one in stream.relations if one.id in written_patterns()}
    if not used:
        raise StreamError("patterns: no relation of this stream has written patterns; they have Wikidata ids.")
    steps = [
        TaskWithTests(
            replace(task, relations=tuple(map(described, task.relations))), stream.validation(k), stream.test(k)
        )
        for k, task in enumerate(stream)
    ]
    whole = hashlib.sha256(f"{stream.manifest.checksum} {json.dumps(used, sort_keys=True)}".encode()).hexdigest()
    notes = (*stream.manifest.notes, f"written patterns for {len(used)} of {len(stream.relations)} relations")
    return TaskStream(stream.name, steps, replace(stream.manifest, checksum=whole, notes=notes))
