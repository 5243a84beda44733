"""The objects of a store: files that are named by their sha256, so that versions share them and damage is noticed.

NumPy is loaded only to read or write arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erda.app.lessons import Lesson
from erda.app.state import RelationFiles, RelationPart
from erda.app.store_format import RelationFile, UnrelatedFile
from erda.errors import ModelError
from erda.files import Decoding, decode_json, inside, read_bytes, write_bytes

if TYPE_CHECKING:
    import numpy as np

DAMAGED = "The store is damaged: open it at another version (version=N, or erda versions --to N), or restore a copy."
DECODING: Decoding = {"error": ModelError, "remedy": DAMAGED, "plain": True}
OPTIONAL = frozenset(
    ("type", "resolved", "counterexamples", "symmetric", "inverse", "head_types", "tail_types", "origin", "merged")
)


class StoreObjects:
    """A folder of objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, names: Iterable[str]) -> bool:
        """Whether all these objects exist."""
        return all((self.folder / name).is_file() for name in names)

    def verify(self, names: Iterable[str]) -> None:
        """Raise a ModelError if one of these objects is missing or damaged."""
        for name in names:
            self._read(name)

    def read_relation(self, files: RelationFiles) -> RelationPart:
        """Read a relation with the arrays of the method."""
        about = self.read_about(files)
        return RelationPart(about.known, about.kept, self.read_tensors(files.rows))

    def read_about(self, files: RelationFiles) -> RelationFile:
        """Read a relation without the arrays."""
        content, place = self._read(f"{files.about}.json")
        return decode_json(content, RelationFile, place=str(place), **DECODING)

    def read_unrelated(self, digest: str) -> tuple[Lesson, ...]:
        """Read the sentences in which no relation holds."""
        if not digest:
            return ()
        content, place = self._read(f"{digest}.json")
        return decode_json(content, UnrelatedFile, place=str(place), **DECODING).unrelated

    def read_tensors(self, digest: str) -> dict[str, np.ndarray]:
        """Read arrays by name."""
        if not digest:
            return {}
        from safetensors import SafetensorError
        from safetensors.numpy import load

        content, place = self._read(f"{digest}.safetensors")
        try:
            return load(content)
        except SafetensorError as fault:
            raise ModelError(f"{place}: cannot be read ({fault}). {DAMAGED}") from None

    def _read(self, name: str) -> tuple[bytes, Path]:
        place = inside(self.folder, name, error=ModelError)
        content = read_bytes(place, error=ModelError)
        if hashlib.sha256(content).hexdigest() != name.partition(".")[0]:
            raise ModelError(f"{place}: is not what was written. {DAMAGED}")
        return content, place

    def write_relation(self, part: RelationPart) -> RelationFiles:
        """Write a relation; return the names of its objects."""
        return RelationFiles(
            self.write_about(RelationFile(part.known, part.kept)),
            self.write_tensors(part.rows),
            len(part.known.lessons),
            len(part.known.counterexamples),
        )

    def write_tensors(self, tensors: Mapping[str, np.ndarray]) -> str:
        """Write arrays; return the sha256, empty if there are none."""
        import numpy as np
        from safetensors.numpy import save

        plain = {name: np.asarray(array, order="C") for name, array in tensors.items()}
        return self._write(save(plain), "safetensors") if plain else ""

    def write_about(self, value: RelationFile | UnrelatedFile) -> str:
        """Write a relation without its arrays, or the sentences in which none holds; return the sha256."""
        content = json.dumps(asdict(value, dict_factory=_stored), ensure_ascii=False)
        return self._write(content.encode(), "json")

    def _write(self, content: bytes, ending: str) -> str:
        digest = hashlib.sha256(content).hexdigest()
        place = self.folder / f"{digest}.{ending}"
        if not place.is_file() or read_bytes(place, error=ModelError) != content:
            write_bytes(place, content)
        return digest


def _stored(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out optional fields without a value, so that an object has the same bytes in every version of erda."""
    return {name: value for name, value in fields if value or name not in OPTIONAL}
