"""What a version of an extractor holds: in memory (`State`), and in the files of a store (`VersionFile`, objects).

This module does not import NumPy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from erda.errors import ModelError
from erda.files import Decoding, decode_json, inside, read_bytes, write_bytes
from erda.types import EncoderSpec, Example, Judged, Relation, pair_key

if TYPE_CHECKING:
    import numpy as np

    from erda.methods.base import Checkpoint

T = TypeVar("T")
FORMAT = 2
DAMAGED = "The store is damaged: open it at another version (version=N, or erda versions --to N), or restore a copy."
DECODING: Decoding = {"error": ModelError, "remedy": DAMAGED, "plain": True}
OPTIONAL = {"type", "resolved", "is_judged", "counterexamples", "head_types", "tail_types", "origin", "merged"}


@dataclass(frozen=True, slots=True)
class Lesson:
    """A taught example: its number, which `take_back` accepts, and the number of its teaching."""

    number: int
    teaching: int
    example: Example
    is_judged: bool = False  # a judgement about a pair, not an example that a person chose


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a relation holds between the entities of a sentence, as a person says."""

    example: Example
    relation: str
    holds: bool
    identity: str = ""  # of the relation (`TaughtRelation`), if the judgement waits: its name can change


@dataclass(frozen=True, slots=True)
class TaughtRelation:
    """A relation with all its taught examples; `since` is the teaching that introduced it.

    A counterexample is a sentence in which the relation does not hold between the two entities; its `relation` is that
    of its owner. Types of entities are declared by hand; without, they are learned. `origin` and `merged` are set by a
    change of the name (`identity`).
    """

    relation: Relation
    since: int
    lessons: tuple[Lesson, ...] = ()
    counterexamples: tuple[Lesson, ...] = ()
    head_types: tuple[str, ...] = ()
    tail_types: tuple[str, ...] = ()
    origin: str = ""  # the identity, if it does not follow from the other fields
    merged: tuple[str, ...] = ()  # identities of the relations that were merged into this one

    @property
    def identity(self) -> str:
        """The first teaching and the first id, whatever the relation is called now."""
        return self.origin or f"{self.since} {self.id}"

    @property
    def id(self) -> str:
        """Id of the relation."""
        return self.relation.id

    @property
    def learned_from(self) -> tuple[object, ...]:
        """Everything that the method learns from; counterexamples and declarations do not change the method."""
        return self.relation, self.since, [(one.number, one.teaching, one.example) for one in self.lessons]


def present_id(relation: str, identity: str, known: Sequence[TaughtRelation]) -> str | None:
    """Find the present id of a relation that may be renamed, merged or taught again; None if it is gone."""
    by_identity = {one: own.id for own in known for one in (*own.merged, own.identity)}
    if identity in by_identity:
        return by_identity[identity]
    return relation if any(one.id == relation for one in known) else None


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything needed to rebuild a method: its name, its settings and its encoder."""

    method: str
    settings: Mapping[str, bool | int | float | str]
    encoder: EncoderSpec


NOTHING = Setup("", {}, EncoderSpec("", {}, ""))  # the setup of an extractor that is not on disk yet


@dataclass(frozen=True, slots=True)
class Stamp:
    """Metadata of a version: its origin, its setup, and the counters that numbering continues from."""

    number: int
    parent: int | None
    time: str
    what: str
    setup: Setup
    n_teachings: int = 0
    n_lessons: int = 0
    identity: str = ""  # random; distinguishes versions with the same number


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Confidence thresholds fitted by `tune`: `overall`, and those of relations with enough labelled rows.

    They apply to the questions on which they were fitted: marked pairs (`predict`), or all pairs of a text (`extract`).
    """

    overall: float
    relations: Mapping[str, float]  # id -> threshold
    precision: float  # the target
    version: int  # whose confidences were tuned
    in_text: bool = False  # fitted on all pairs of texts

    def of(self, relation: str) -> float:
        """The threshold of a relation."""
        return self.relations.get(relation, self.overall)

    def renamed(self, old: str, new: str) -> Thresholds:
        """The thresholds after a relation was renamed."""
        return replace(self, relations={new if one == old else one: at for one, at in self.relations.items()})

    def without(self, *relations: str) -> Thresholds:
        """The thresholds without relations that are gone."""
        return replace(self, relations={one: at for one, at in self.relations.items() if one not in relations})


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version as listed in the history."""

    number: int
    parent: int | None
    time: str
    what: str
    method: str
    encoder: str
    n_relations: int
    n_examples: int
    is_current: bool = False
    n_counterexamples: int = 0
    n_unrelated: int = 0  # sentences in which no relation holds
    n_lessons: int = 0  # ever taught: the numbers from that of the parent belong to examples of this version


@dataclass(frozen=True, slots=True)
class RelationFiles:
    """The sha256 of the objects of a relation; `rows` is empty if the method has no array of it."""

    about: str
    rows: str
    n_examples: int
    n_counterexamples: int = 0

    def objects(self) -> set[str]:
        """The names of the objects."""
        return {f"{self.about}.json"} | ({f"{self.rows}.safetensors"} if self.rows else set())


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A version in memory: the taught examples and the checkpoint of the method.

    `unrelated` are sentences in which no known relation holds. Lessons of all kinds share their numbers.
    """

    stamp: Stamp
    known: tuple[TaughtRelation, ...] = ()  # in the order of the method
    learned: Checkpoint | None = None  # None: nothing was taught yet
    unrelated: tuple[Lesson, ...] = ()
    thresholds: Thresholds | None = None

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The known relations, in the order of the method."""
        return tuple(one.relation for one in self.known)

    def changed(self, what: str, **fields: Any) -> State:
        """The state after a change; `what` is its line of the history."""
        return replace(self, stamp=replace(self.stamp, what=what), **fields)


@dataclass(frozen=True, slots=True)
class RelationFile:
    """`objects/*.json` of a relation."""

    known: TaughtRelation
    kept: tuple[Example, ...] = ()


def now() -> str:
    """The current time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    format: int = FORMAT
    unrelated: str = ""  # sha256 of the unrelated sentences; empty if there are none
    n_unrelated: int = 0
    thresholds: Thresholds | None = None

    def objects(self) -> set[str]:
        """The names of all its objects."""
        found = {name for one in self.relations for name in one.objects()}
        found |= {f"{self.shared}.safetensors"} if self.shared else set()
        return found | ({f"{self.unrelated}.json"} if self.unrelated else set())

    def without(self, place: int, relation: str) -> VersionFile:
        """The next version, which has forgotten a relation: `relation` is at this `place`."""
        rest = [one for one in range(len(self.relations)) if one != place]
        return replace(
            self,
            stamp=replace(self.stamp, parent=self.stamp.number, time=now(), what=f"forgot {relation}"),
            n_tasks=self.n_tasks if rest else 0,
            relations=tuple(self.relations[one] for one in rest),
            kept=tuple(rest.index(one) for one in self.kept if one != place),
            shared=self.shared if rest else "",
            thresholds=self.thresholds and self.thresholds.without(relation),
        )

    def is_same(self, other: VersionFile) -> bool:
        """Whether two versions are equal except for the time of writing."""
        mine, theirs = (replace(one, stamp=replace(one.stamp, time="", identity="")) for one in (self, other))
        return mine == theirs

    def info(self, current: int) -> VersionInfo:
        """The entry of this version in the history."""
        stamped = {name: getattr(self.stamp, name) for name in ("number", "parent", "time", "what", "n_lessons")}
        return VersionInfo(
            **stamped,
            method=self.stamp.setup.method,
            encoder=self.stamp.setup.encoder.name,
            n_relations=len(self.relations),
            n_examples=sum(one.n_examples for one in self.relations),
            is_current=self.stamp.number == current,
            n_counterexamples=sum(one.n_counterexamples for one in self.relations),
            n_unrelated=self.n_unrelated,
        )


class StoreObjects:
    """A folder of objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read_about(self, digest: str, kind: type[T]) -> T:
        """Read a `RelationFile`, or an `UnrelatedFile`."""
        content, place = self._read(f"{digest}.json")
        return decode_json(content, kind, place=str(place), **DECODING)

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

    def write_relation(self, about: RelationFile, rows: Mapping[str, np.ndarray]) -> RelationFiles:
        """Write a relation and its arrays; return the names of the objects."""
        known = about.known
        digests = self.write_about(about), self.write_tensors(rows)
        return RelationFiles(*digests, len(known.lessons), len(known.counterexamples))

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


def judged_pairs(state: State) -> Judged:
    """What people said about each pair: its relations, those that do not hold, or that no relation holds."""
    found: dict[str, dict[str, bool]] = {}
    for lesson in state.unrelated:
        found[pair_key(lesson.example)] = dict.fromkeys((one.id for one in state.known), False)
    for known in state.known:
        for holds, lessons in ((False, known.counterexamples), (True, known.lessons)):
            for lesson in lessons:
                found.setdefault(pair_key(lesson.example), {})[known.id] = holds
    return found
