"""An extractor on the disk: every version whole or not there, what two versions share written once.

    extractor.json              the store's format, the current version, the last one written
    versions/7.json             what was done, when, on what; which files hold its relations
    objects/SHA256.json         a relation and every example it was taught by
    objects/SHA256.safetensors  what the method keeps of it; weights that learning changed

Objects are written first, then the version, then `extractor.json`, each in one step: a kill or a full disk leaves the
version that was there. Writers take a lock; readers need none, since no file that a version names ever changes.
PyTorch is loaded only where tensors are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from erda.app.answers import VersionInfo
from erda.app.lessons import Known
from erda.app.state import Part, RelationFiles, Stamp, State, parts_of
from erda.errors import DataError, ModelError, WriteError
from erda.files import (
    cannot_write,
    decode_json,
    inside,
    is_unfinished,
    locked,
    read_bytes,
    read_json,
    read_sealed,
    remove_unfinished,
    sealed,
    write_bytes,
    write_json,
)
from erda.types import Example

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
HEAD, VERSIONS, OBJECTS = "extractor.json", "versions", "objects"
WAIT = 2.0  # seconds, for another process that teaches
DAMAGED = "The store is damaged: open it at another version (version=N, or erda undo --to N), or restore a copy."


@dataclass(frozen=True, slots=True)
class Marker:
    """What says that a folder is a store, of whatever format."""

    format: int


@dataclass(frozen=True, slots=True)
class Head(Marker):
    """`extractor.json`. `id` tells a store from another that was put in its place."""

    id: str
    current: int
    last: int


@dataclass(frozen=True, slots=True)
class RelationFile:
    """`objects/*.json`."""

    known: Known
    kept: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class VersionFile:
    """`versions/*.json`."""

    stamp: Stamp
    n_tasks: int
    relations: tuple[RelationFiles, ...]
    kept: tuple[int, ...]  # of each exemplar, in the method's order, the place of its relation
    shared: str  # sha256 of what belongs to no relation; empty: nothing does

    def objects(self) -> set[str]:
        """The names of all its objects."""
        found = {f"{one.about}.json" for one in self.relations}
        found |= {f"{one.rows}.safetensors" for one in self.relations if one.rows}
        return found | ({f"{self.shared}.safetensors"} if self.shared else set())

    def info(self, current: int) -> VersionInfo:
        """A line of the history."""
        stamp, n_examples = self.stamp, sum(one.n_examples for one in self.relations)
        return VersionInfo(
            stamp.number,
            stamp.parent,
            stamp.time,
            stamp.what,
            stamp.setup.method,
            stamp.setup.encoder.name,
            len(self.relations),
            n_examples,
            stamp.number == current,
        )


class Store:
    """A folder of versions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # -- the head ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is a store; a folder that holds something else is refused."""
        if (self.folder / HEAD).is_file():
            return True
        try:
            found = [path.name for path in self.folder.iterdir()] if self.folder.exists() else []
        except NotADirectoryError:
            raise DataError(f"{self.folder}: is a file; an extractor is a folder, name another.") from None
        except OSError as fault:
            raise DataError(f"{self.folder}: cannot be read ({fault.strerror or fault}).") from None
        ours = {".lock", VERSIONS, OBJECTS}  # a kill before the first version was whole
        if other := [name for name in found if name not in ours and not is_unfinished(name)]:
            raise DataError(f"{self.folder} holds something else than an extractor ({other[0]}); name another folder.")
        if found and self._numbers() not in ([], [0]):
            raise ModelError(f"{self.folder / HEAD} is missing. {DAMAGED}")
        return False

    def head(self) -> Head:
        """The current version and the last one."""
        place = self.folder / HEAD
        if not place.is_file():
            raise ModelError(
                f"{place} is gone: the store was deleted or moved. What is in memory still answers; "
                "save(folder) writes it to another place."
            )
        found = read_json(place, Marker, error=ModelError, remedy=DAMAGED).format
        if found > FORMAT:
            raise DataError(
                f"{place} has format {found}, this version of erda reads up to {FORMAT}: it was written by a newer "
                "one. Upgrade with: pip install -U erda"
            )
        return read_sealed(place, Head, error=ModelError, remedy=DAMAGED)

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[None]:
        """Nobody else writes. Only `create` makes a store where there is none."""
        if not create:
            self.head()
        busy = "another process is teaching this extractor; try again when it is done"
        with locked(self.folder, busy=busy, wait=WAIT):
            for folder in (self.folder, self.folder / VERSIONS, self.folder / OBJECTS):
                remove_unfinished(folder)
            yield

    def point(self, number: int) -> None:
        """Make a version the current one, also where what said which one it was is damaged."""
        try:
            head = self.head()
        except ModelError:
            head = Head(FORMAT, uuid4().hex, number, max(self._numbers(), default=0))
        self.refuse_missing(number, head.last)
        write_json(self.folder / HEAD, sealed(replace(head, current=number)))

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, number: int, near: State | None = None) -> State:
        """A version; what it shares with `near` is not read again."""
        from erda.methods.base import Checkpoint

        version = self._read_version(number)
        at_hand = {near.files[part.known.id]: part for part in parts_of(near)} if near else {}
        parts = [at_hand.get(files) or self._read_relation(files) for files in version.relations]
        kept = [iter(part.kept) for part in parts]
        others = self._read_tensors(version.shared)
        learned = Checkpoint(
            version.stamp.setup.method,
            version.n_tasks,
            tuple(part.known.relation for part in parts),
            tuple(next(kept[place]) for place in version.kept),
            {
                name: {part.known.id: part.rows[name] for part in parts if name in part.rows}
                for name in dict.fromkeys(name for part in parts for name in part.rows)
            },
            _named(others, "shared."),
            _named(others, "encoder."),
        )
        known = tuple(part.known for part in parts)
        files = dict(zip((one.id for one in known), version.relations, strict=True))
        return State(version.stamp, known, learned if known else None, files)

    def current(self) -> VersionInfo:
        """The line of the current version."""
        number = self.head().current
        return self._read_version(number).info(number)

    def known(self) -> tuple[Known, ...]:
        """What the current version was taught; what the method made of it is not read."""
        version = self._read_version(self.head().current)
        return tuple(self._read_about(files).known for files in version.relations)

    def history(self) -> list[VersionInfo]:
        """Every version on the disk, the oldest first."""
        head = self.head()
        return [self._read_version(number).info(head.current) for number in self._numbers(head.last)]

    def _read_version(self, number: int) -> VersionFile:
        self.refuse_missing(number, self.head().last)
        return read_sealed(self._version_path(number), VersionFile, error=ModelError, remedy=DAMAGED)

    def refuse_missing(self, number: int, last: float = math.inf) -> None:
        """Refuse a version that is not there, or that was never the current one."""
        if number > last or not self._version_path(number).is_file():
            there = ", ".join(map(str, self._numbers(last))) or "none"
            raise DataError(f"{self.folder} has no version {number}; there are: {there}.")

    def _read_relation(self, files: RelationFiles) -> Part:
        about = self._read_about(files)
        return Part(about.known, about.kept, self._read_tensors(files.rows))

    def _read_about(self, files: RelationFiles) -> RelationFile:
        content, place = self._read_object(f"{files.about}.json")
        return decode_json(content, RelationFile, place=str(place), error=ModelError, remedy=DAMAGED)

    def _read_tensors(self, digest: str) -> dict[str, Tensor]:
        if not digest:
            return {}
        from safetensors import SafetensorError
        from safetensors.torch import load

        content, place = self._read_object(f"{digest}.safetensors")
        try:
            return load(content)
        except SafetensorError as fault:
            raise ModelError(f"{place}: cannot be read ({fault}). {DAMAGED}") from None

    def _read_object(self, name: str) -> tuple[bytes, Path]:
        place = inside(self.folder / OBJECTS, name, error=ModelError)
        content = read_bytes(place, error=ModelError)
        if hashlib.sha256(content).hexdigest() != name.partition(".")[0]:
            raise ModelError(f"{place}: is not what was written. {DAMAGED}")
        return content, place

    def _numbers(self, last: float = math.inf) -> list[int]:
        stems = [path.stem for path in (self.folder / VERSIONS).glob("*.json") if path.stem.isdecimal()]
        return sorted(number for number in map(int, stems) if number <= last)

    def _version_path(self, number: int) -> Path:
        return self.folder / VERSIONS / f"{number}.json"

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, state: State, near: State | None = None) -> State:
        """Write a version and make it the current one; what it shares with `near` is there already."""
        before = {part.known.id: part for part in parts_of(near)} if near else {}
        files = {
            part.known.id: near.files[part.known.id]
            if near and part.is_same(before.get(part.known.id))
            else self._write_relation(part)
            for part in parts_of(state)
        }
        places = {one.id: place for place, one in enumerate(state.known)}
        learned = state.learned
        others = {f"shared.{name}": tensor for name, tensor in learned.shared.items()} if learned else {}
        others |= {f"encoder.{name}": tensor for name, tensor in learned.weights.items()} if learned else {}
        version = VersionFile(
            state.stamp,
            learned.n_tasks if learned else 0,
            tuple(files[one.id] for one in state.known),
            tuple(places[example.relation or ""] for example in learned.kept) if learned else (),
            self._write_tensors(others),
        )
        number = state.stamp.number
        write_json(self._version_path(number), sealed(version))
        own_id = self.head().id if (self.folder / HEAD).is_file() else uuid4().hex
        write_json(self.folder / HEAD, sealed(Head(FORMAT, own_id, number, number)))
        return replace(state, files=files)

    def _write_relation(self, part: Part) -> RelationFiles:
        about = json.dumps(asdict(RelationFile(part.known, part.kept)), ensure_ascii=False).encode()
        return RelationFiles(self._write_object(about, "json"), self._write_tensors(part.rows), len(part.known.lessons))

    def _write_tensors(self, tensors: Mapping[str, Tensor]) -> str:
        from safetensors.torch import save
        from torch import contiguous_format

        plain = {name: one.cpu().clone(memory_format=contiguous_format) for name, one in tensors.items()}
        return self._write_object(save(plain), "safetensors") if plain else ""

    def _write_object(self, content: bytes, ending: str) -> str:
        digest = hashlib.sha256(content).hexdigest()
        place = self.folder / OBJECTS / f"{digest}.{ending}"
        if not place.is_file() or read_bytes(place, error=ModelError) != content:
            write_bytes(place, content)
        return digest

    def prune(self, keep: Sequence[int]) -> int:
        """Remove all versions but these and the current one, and every object that none of them names; how many."""
        head = self.head()
        numbers = self._numbers(head.last)
        kept = [self._read_version(number) for number in numbers if number in keep or number == head.current]
        names = {name for version in kept for name in version.objects()}
        numbered = {f"{version.stamp.number}.json" for version in kept}
        try:
            for path in (self.folder / VERSIONS).glob("*"):
                if path.name not in numbered:
                    path.unlink(missing_ok=True)
            for path in (self.folder / OBJECTS).glob("*"):
                if path.name not in names:
                    path.unlink(missing_ok=True)
        except OSError as fault:
            raise WriteError(cannot_write(self.folder, fault)) from fault
        return len(numbers) - len(kept)


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
