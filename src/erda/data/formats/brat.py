"""brat's standoff files: a text (`x.txt`) and its annotations (`x.ann`), one per line; or a folder of such files.

`T1<tab>City 0 4<tab>Oslo` marks an entity, `R1<tab>capital_of Arg1:T1 Arg2:T2` a relation from the first argument to
the second, `N1<tab>Reference T1 Wikidata:Q585<tab>Oslo` gives the id of an entity. Events, attributes, notes and
equivalences are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from erda.data.formats.document_spans import Marked, sentences_example
from erda.data.formats.row_collector import SourceRow
from erda.errors import DataError
from erda.files import read_bytes
from erda.text.reading import Faults, read_lines
from erda.types import Example

EXPECTED = "brat annotations, one per line"
NO_RELATION = "the text has no relation"
IN_PIECES = "an entity has several fragments"
EVENT = "an argument is an event"
_ENTITY = re.compile(r"\S+ (\d{1,12}) (\d{1,12})((?:;\d+ \d+)*)")
_RELATION = re.compile(r"(\S+) \S+?:(\S+) \S+?:(\S+)\s*")
_REFERENCE = re.compile(r"Reference (\S+) (\S+)")


@dataclass(frozen=True, slots=True)
class Standoff:
    """The entities, references and relations of one text; each relation with its line."""

    entities: dict[str, tuple[re.Match[str], str]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    relations: list[tuple[int, re.Match[str]]] = field(default_factory=list)


def brat_rows(path: Path, faults: Faults) -> Iterator[SourceRow]:
    """Yield a row for each relation; a text without relations yields one row to skip."""
    numbers = count(1)
    for file in brat_files(path):
        faults.path = file
        text = _text(file.with_suffix(".txt"))
        found = _standoff(file, faults)
        for line, relation in found.relations:
            number = next(numbers)
            yield SourceRow(line, partial(_example, text, found, relation, f"{file.stem}:{line}"), number=number)
        if not found.relations:
            yield SourceRow(1, lambda: NO_RELATION, number=next(numbers))


def brat_files(path: Path) -> list[Path]:
    """Return the `.ann` files of a path: the file itself, the one beside a text, or those in a folder."""
    return sorted(path.glob("*.ann")) if path.is_dir() else [path.with_suffix(".ann")]


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()  # with its byte order mark: brat counts it
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8.") from None


def _standoff(path: Path, faults: Faults) -> Standoff:
    found = Standoff()
    for number, line in read_lines(path, faults):
        key, _, rest = line.partition("\t")
        about, _, words = rest.partition("\t")
        if not line or line.isspace() or (key and key[0] in "EAM#*"):
            continue
        pattern = {"T": _ENTITY, "R": _RELATION, "N": _REFERENCE}.get(key[:1])
        match = pattern.fullmatch(about) if pattern else None
        if match is None:
            faults.add(number, f"not a brat annotation: {line[:60]!r}.")
        elif key[0] == "T":
            found.entities[key] = (match, words)
        elif key[0] == "R":
            found.relations.append((number, match))
        else:
            found.references.setdefault(match[1], match[2])
    return found


def _example(text: str, found: Standoff, relation: re.Match[str], example_id: str) -> Example | str:
    marks: list[Marked] = []
    for entity_id in relation.group(2, 3):
        if entity_id.startswith("E"):
            return EVENT
        if entity_id not in found.entities:
            raise DataError(f"argument {entity_id} is not defined in this file.")
        entity, words = found.entities[entity_id]
        if entity[3]:
            return IN_PIECES
        marks.append(
            Marked(int(entity[1]), int(entity[2]), words or None, found.references.get(entity_id), entity[0].split()[0])
        )
    return sentences_example(text, *marks, relation=relation[1], id=example_id)
