"""The files of a store (`store.py`) as typed values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from erda.app.lessons import Known, Lesson
from erda.app.state import RelationFiles, Stamp, Thresholds, VersionInfo
from erda.types import Example

FORMAT = 2


@dataclass(frozen=True, slots=True)
class StoreMarker:
    """The part of `extractor.json` that every format has."""

    format: int


@dataclass(frozen=True, slots=True)
class StoreHead(StoreMarker):
    """`extractor.json`; `identity` belongs to the current version."""

    current: int
    last: int
    identity: str = ""


@dataclass(frozen=True, slots=True)
class RelationFile:
    """`objects/*.json` of a relation."""

    known: Known
    kept: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class UnrelatedFile:
    """`objects/*.json` of the sentences in which no relation holds."""

    unrelated: tuple[Lesson, ...]


@dataclass(frozen=True, slots=True)
class VersionFile:
    """`versions/*.json`."""

    stamp: Stamp
    n_tasks: int
    relations: tuple[RelationFiles, ...]
    kept: tuple[int, ...]  # index of the relation of each exemplar, in the method's order
    shared: str  # sha256 of the arrays that belong to no relation; empty if there are none
    format: int = 1
    unrelated: str = ""  # sha256 of the unrelated sentences; empty if there are none
    n_unrelated: int = 0
    thresholds: Thresholds | None = None

    def objects(self) -> set[str]:
        """The names of all its objects."""
        found = {name for one in self.relations for name in object_names(one)}
        found |= {f"{self.shared}.safetensors"} if self.shared else set()
        return found | ({f"{self.unrelated}.json"} if self.unrelated else set())

    def is_same(self, other: VersionFile) -> bool:
        """Whether two versions are equal except for the time of writing."""
        return replace(self, stamp=replace(self.stamp, time="", identity="")) == replace(
            other, stamp=replace(other.stamp, time="", identity="")
        )

    def info(self, current: int) -> VersionInfo:
        """The entry of this version in the history."""
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
            sum(one.n_counterexamples for one in self.relations),
            self.n_unrelated,
        )


def object_names(files: RelationFiles) -> set[str]:
    """The names of a relation's objects."""
    return {f"{files.about}.json"} | ({f"{files.rows}.safetensors"} if files.rows else set())
