"""An extractor on disk: every version is complete or absent, and versions share equal objects.

    extractor.json              the store's format, its current version, the highest number used so far
    versions/7.json             what was done, when, with which method and encoder; the objects of its relations
    objects/SHA256.json         a relation, its examples and counterexamples; or the sentences without a relation
    objects/SHA256.safetensors  the method's arrays of a relation; weights that learning changed
    derived.bin                 optional: the fitted method of the version asked last (`read_derived`)

Objects are written first, then the version, then `extractor.json`, each in one step: a kill or a full disk leaves the
previous version current. Writers take a lock. Readers need none, because no file that a version names ever changes.
Every version has a random identity, which distinguishes two versions with the same number (after a backup was
restored).
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from erda import __version__
from erda.app.inputs import find_relation, known_relation
from erda.app.state import (
    DAMAGED,
    DECODING,
    FORMAT,
    RelationFile,
    Stamp,
    State,
    StoreHead,
    StoreMarker,
    StoreObjects,
    UnrelatedFile,
    VersionFile,
    VersionInfo,
)
from erda.errors import BusyError, DataError, ErdaError, ModelError, WriteError
from erda.files import (
    LOCK,
    is_unfinished,
    locked,
    read_json,
    read_sealed,
    remove_own,
    remove_unfinished,
    sealed,
    write_bytes,
    write_json,
)
from erda.types import Example, Relation

if TYPE_CHECKING:
    import numpy as np

HEAD, VERSIONS, OBJECTS, DERIVED = "extractor.json", "versions", "objects", "derived.bin"
DERIVED_FORMAT = 11  # raise it whenever the same examples lead to other arrays
LEAST_BYTES = 1_000_000  # smaller arrays are computed faster than they are written
SEAL_BYTES = 32
WAIT = 10.0  # seconds to wait for another process that is teaching
_VERSION = re.compile(r"(0|[1-9]\d*)\.json")
_OBJECT = re.compile(r"[0-9a-f]{64}\.(json|safetensors)")


class Store:
    """A folder of versions."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.objects = folder, StoreObjects(folder / OBJECTS)

    # -- the head ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether the folder holds a store; a folder that holds anything else is rejected."""
        if (self.folder / HEAD).is_file():
            return True
        try:
            found = list(self.folder.iterdir()) if self.folder.exists() else []
            ours = (LOCK, VERSIONS, OBJECTS, DERIVED)  # the process was killed before the first version was complete
            other = [path for path in found if path.name not in ours and not is_unfinished(path.name)]
            other += [path for name in (VERSIONS, OBJECTS) for path in self._foreign(self.folder / name)]
        except NotADirectoryError:
            raise DataError(f"{self.folder}: is a file; an extractor is a folder, name another.") from None
        except OSError as fault:
            raise DataError(f"{self.folder}: cannot be read ({fault.strerror or fault}).") from None
        if other:
            name = other[0].relative_to(self.folder)
            raise DataError(f"{self.folder} holds other files than an extractor ({name}); name another folder.")
        if self.numbers() not in ([], [0]):
            raise ModelError(f"{self.folder / HEAD} is missing. {DAMAGED}")
        return False

    def _foreign(self, folder: Path) -> Iterator[Path]:
        """List files in `versions/` and `objects/` that erda did not write."""
        if folder.is_symlink():
            yield folder
        elif folder.exists():
            for path in folder.iterdir():
                is_object = folder.name == OBJECTS and _OBJECT.fullmatch(path.name)
                if path.is_symlink() or not (is_object or is_unfinished(path.name) or self._is_own_version(path)):
                    yield path

    def _is_own_version(self, path: Path) -> bool:
        with suppress(ErdaError):
            return _VERSION.fullmatch(path.name) is not None and bool(self._read_file(int(path.stem)))
        return False

    def head(self) -> StoreHead:
        """The current version and the highest number."""
        place = self.folder / HEAD
        if not place.is_file():
            raise ModelError(
                f"{place} is gone: the store was deleted or moved. What is in memory still answers. "
                "Put the store back, or save what is in memory to another folder."
            )
        if (found := read_json(place, StoreMarker, **DECODING).format) != FORMAT:
            raise DataError(
                f"{place} has format {found}, this version of erda reads {FORMAT}. Upgrade with: pip install -U erda"
            )
        return read_sealed(place, StoreHead, **DECODING)

    @contextmanager
    def writing(self, *, begin: bool = False, mend: bool = False) -> Iterator[None]:
        """Keep other writers out.

        Without a head, only `begin` starts a store, which is removed again if its first version fails, and only
        `mend` works on a damaged one.
        """
        if not (begin or mend):
            self.head()
        new_folders = [path for path in (self.folder, *self.folder.parents) if not path.exists()]  # deepest first
        busy = f"another process has been teaching this extractor for {WAIT:g} seconds; try again when it is done"
        try:
            with locked(self.folder, busy=busy, error=BusyError, wait=WAIT):
                for path in (self.folder / HEAD, self.folder / VERSIONS, self.folder / OBJECTS):
                    if path.is_symlink():
                        raise ModelError(f"{path}: is a symbolic link; erda does not write through it. {DAMAGED}")
                for folder in (self.folder, self.folder / VERSIONS, self.folder / OBJECTS):
                    remove_unfinished(folder)
                is_new = begin and not (self.folder / HEAD).exists() and self.numbers() in ([], [0])
                try:
                    yield
                except BaseException:
                    if is_new:
                        remove_own(self.folder / HEAD)
                        remove_own(self.folder / DERIVED)
                        self._remove_but(versions=(), objects=())
                    raise
        finally:
            for path in new_folders:
                if any(path.glob("*")):
                    break
                remove_own(path)

    def point(self, number: int) -> None:
        """Make a version the current one, even if `extractor.json` is damaged."""
        try:
            head = self.head()
        except ModelError:
            head = StoreHead(FORMAT, number, max(self.numbers(), default=0))
        identity = self._read_file(number).stamp.identity
        write_json(self.folder / HEAD, sealed(replace(head, current=number, identity=identity)))

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, number: int, *, mend: bool = False) -> State:
        """Read a version; with `mend`, even if `extractor.json` is damaged."""
        from erda.methods.base import Checkpoint

        version = self._read_file(number) if mend else self.version_file(number)
        content, abouts = self._content(version)
        if not abouts:
            return content
        kept = [iter(about.kept) for about in abouts]
        rows: dict[str, dict[str, np.ndarray]] = {}
        for about, files in zip(abouts, version.relations, strict=True):
            for name, array in self.objects.read_tensors(files.rows).items():
                rows.setdefault(name, {})[about.known.id] = array
        others = self.objects.read_tensors(version.shared)
        learned = Checkpoint(
            version.stamp.setup.method,
            version.n_tasks,
            content.relations,
            tuple(next(kept[place]) for place in version.kept),
            rows,
            _named(others, "shared."),
            _named(others, "encoder."),
        )
        return replace(content, learned=learned)

    def before(self) -> int:
        """The version before the current one: the next older one if the file of the current one is damaged."""
        current, numbers = self.head().current, self.numbers()
        try:
            found = self._read_file(current).stamp.parent
        except ModelError:
            found = max((number for number in numbers if number < current), default=None)
        if found is None:
            raise DataError("There is nothing to undo: this is the first version.")
        if found not in numbers:
            there = ", ".join(map(str, numbers))
            raise DataError(f"There is nothing to undo: version {found} was removed. Versions on disk: {there}.")
        return found

    def current(self) -> VersionInfo:
        """The current version's line of the history."""
        number = self.head().current
        return self.version_file(number).info(number)

    def content(self) -> State:
        """Read the current version without the arrays of the method, and so without NumPy."""
        return self._content(self.version_file(self.head().current))[0]

    def _content(self, version: VersionFile) -> tuple[State, list[RelationFile]]:
        """A version without the arrays of the method, and the objects that describe its relations."""
        abouts = [self.objects.read_about(files.about, RelationFile) for files in version.relations]
        unrelated = self.objects.read_about(version.unrelated, UnrelatedFile).unrelated if version.unrelated else ()
        return State(version.stamp, tuple(one.known for one in abouts), None, unrelated, version.thresholds), abouts

    def history(self) -> list[VersionInfo]:
        """Every version on disk, oldest first."""
        current, found = self.head().current, list[VersionInfo]()
        for number in self.numbers():
            try:
                found.append(self._read_file(number).info(current))
            except ModelError:
                if self._version_path(number).exists():  # else another process has just pruned it
                    raise
        return found

    def version_file(self, number: int) -> VersionFile:
        """Read the file of a version."""
        head = self.head()
        self.refuse_missing(number)
        found = self._read_file(number)
        if number == head.current and head.identity and found.stamp.identity != head.identity:
            raise ModelError(
                f"{self._version_path(number)}: is not the version that {HEAD} names; one of the two was replaced. "
                f"{DAMAGED}"
            )
        return found

    def _read_file(self, number: int) -> VersionFile:
        place = self._version_path(number)
        found = read_sealed(place, VersionFile, **DECODING)
        if found.stamp.number != number:
            raise ModelError(f"{place}: holds version {found.stamp.number}; the file was renamed. {DAMAGED}")
        return found

    def refuse_missing(self, number: int) -> None:
        """Reject a version that is not on disk."""
        if type(number) is not int or not 0 <= number < 2**53 or not self._version_path(number).is_file():
            there = ", ".join(map(str, self.numbers())) or "none"
            raise DataError(f"{self.folder} has no version {number!r:.40}; there are: {there}.")

    def numbers(self) -> list[int]:
        """The numbers of all versions on disk, in order."""
        names = (path.name for path in (self.folder / VERSIONS).glob("*.json"))
        return sorted(int(name.removesuffix(".json")) for name in names if _VERSION.fullmatch(name))

    def _version_path(self, number: int) -> Path:
        return self.folder / VERSIONS / f"{number}.json"

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, state: State) -> State:
        """Write a version with the next free number, make it current and return it."""
        from erda.methods.base import Checkpoint

        learned = state.learned or Checkpoint(state.stamp.setup.method, 0, (), (), {}, {}, {})
        places, kept = {one.id: place for place, one in enumerate(state.known)}, defaultdict[str, list[Example]](list)
        for example in learned.kept:
            kept[str(example.relation)].append(example)
        relations = (
            self.objects.write_relation(
                RelationFile(one, tuple(kept[one.id])),
                {name: own[one.id] for name, own in learned.rows.items() if one.id in own},
            )
            for one in state.known
        )
        others = {f"shared.{name}": tensor for name, tensor in learned.shared.items()}
        others |= {f"encoder.{name}": tensor for name, tensor in learned.weights.items()}
        version = VersionFile(
            state.stamp,
            learned.n_tasks,
            tuple(relations),
            tuple(places[str(example.relation)] for example in learned.kept),
            self.objects.write_tensors(others),
            FORMAT,
            self.objects.write_about(UnrelatedFile(state.unrelated)) if state.unrelated else "",
            len(state.unrelated),
            state.thresholds,
        )
        return replace(state, stamp=self._add(version))

    def forget(self, relation: str) -> None:
        """Write the current version without a relation; of the other relations, only the names are read.

        A relation whose name is damaged is dropped by any name that no other relation has.
        """
        version, found = self.version_file(self.head().current), dict[int, Relation]()
        for place, files in enumerate(version.relations):
            with suppress(ModelError):
                found[place] = self.objects.read_about(files.about, RelationFile).known.relation
        unread = [place for place in range(len(version.relations)) if place not in found]
        if len(unread) == 1 and find_relation(relation, found.values()) is None:
            self._add(version.without(unread[0], relation))
            return
        gone = known_relation(relation, found.values())
        self._add(version.without(next(place for place, one in found.items() if one is gone), gone.id))

    def _add(self, version: VersionFile) -> Stamp:
        """Write the file of the next version, and make it current."""
        version = self._numbered(replace(version, stamp=replace(version.stamp, identity=token_hex(16))))
        stamp = version.stamp
        write_json(self._version_path(stamp.number), sealed(version))
        write_json(self.folder / HEAD, sealed(StoreHead(FORMAT, stamp.number, stamp.number, stamp.identity)))
        return stamp

    def _numbered(self, version: VersionFile) -> VersionFile:
        """Give a version a number that was never current; it replaces an equal one that a kill left behind.

        Without a head, version 0 was never complete and is written again.
        """
        has_head = (self.folder / HEAD).is_file()
        last = self.head().last if has_head else -1
        beyond = [number for number in self.numbers() if has_head and number > last]
        numbered = replace(version, stamp=replace(version.stamp, number=last + 1))
        with suppress(ModelError):
            if not beyond or (beyond == [last + 1] and numbered.is_same(self._read_file(last + 1))):
                return numbered
        return replace(version, stamp=replace(version.stamp, number=max(beyond) + 1))

    def prune(self, keep: Collection[int]) -> int:
        """Remove all versions except these and the current one, with their objects; return the number removed."""
        current = self.head().current
        remove_own(self.folder / DERIVED)
        numbers = self.numbers()
        kept = [self._read_file(number) for number in numbers if number in keep or number == current]
        objects = {name for version in kept for name in version.objects()}
        self._remove_but(versions={version.stamp.number for version in kept}, objects=objects)
        return len(numbers) - len(self.numbers())

    def _remove_but(self, *, versions: Collection[int], objects: Collection[str]) -> None:
        def is_old_version(name: str) -> bool:
            return self._is_own_version(self.folder / VERSIONS / name) and int(Path(name).stem) not in versions

        def is_old_object(name: str) -> bool:
            return _OBJECT.fullmatch(name) is not None and name not in objects

        for folder, is_own in ((self.folder / VERSIONS, is_old_version), (self.folder / OBJECTS, is_old_object)):
            for path in sorted(folder.glob("*")):  # files alone: erda makes no folder in these
                if not path.is_file() or path.is_symlink() or not (is_own(path.name) or is_unfinished(path.name)):
                    continue
                if remove_own(path):
                    raise WriteError(f"{path} cannot be removed. Fix this and run the same command again.")
            if not any(folder.glob("*")):
                remove_own(folder)

    # -- derived arrays ------------------------------------------------------------------------------------------------

    def read_derived(self, identity: str) -> dict[str, np.ndarray] | None:
        """Read the derived arrays of a version, by name; None if they are not on disk or cannot be trusted."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        with suppress(OSError, SafetensorError):
            found = (self.folder / DERIVED).read_bytes()
            if found[:SEAL_BYTES] == _derived_seal(identity, found[SEAL_BYTES:]):
                return load(found[SEAL_BYTES:])
        return None

    def write_derived(self, identity: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the arrays if they are large and the version is current; a store that cannot be written stays as is."""
        from safetensors.numpy import save

        if sum(array.nbytes for array in arrays.values()) < LEAST_BYTES:
            return
        content = save(dict(arrays))
        with suppress(ErdaError):  # read-only, full disk, gone, or locked by a process that teaches
            self.head()  # the lock would create a folder that is gone
            with locked(self.folder, busy="busy", wait=0):
                if self.head().identity == identity:
                    write_bytes(self.folder / DERIVED, _derived_seal(identity, content) + content)


def _derived_seal(identity: str, content: bytes) -> bytes:
    key = hashlib.sha256(f"{DERIVED_FORMAT} {__version__} {identity}".encode()).digest()
    return hashlib.blake2b(content, key=key, digest_size=SEAL_BYTES).digest()


def _named(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
