"""A version of an extractor in memory: its metadata, the taught examples, and the checkpoint of the method.

`store.py` writes it to disk. This module does not import NumPy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from erda.app.lessons import Known, Lesson
from erda.types import EncoderSpec, Example

if TYPE_CHECKING:
    import numpy as np

    from erda.methods.base import Checkpoint


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything needed to rebuild a method: its name, its settings and its encoder."""

    method: str
    settings: Mapping[str, bool | int | float | str]
    encoder: EncoderSpec


TAUGHT_BY_0_1 = (
    "was taught by erda 0.1.0 and can only be listed. Convert it with relearn=True (erda teach --relearn), which "
    "teaches all its examples again."
)
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

    def only(self, relations: Collection[str]) -> Thresholds:
        """The thresholds without relations that are gone."""
        return replace(self, relations={one: at for one, at in self.relations.items() if one in relations})


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


@dataclass(frozen=True, slots=True)
class RelationFiles:
    """The sha256 of the objects of a relation; `rows` is empty if the method has no array of it."""

    about: str
    rows: str
    n_examples: int
    n_counterexamples: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A version in memory: the taught examples and the checkpoint of the method.

    `unrelated` are sentences in which no known relation holds. Lessons of all kinds share their numbers.
    """

    stamp: Stamp
    known: tuple[Known, ...] = ()  # in the order of the method
    learned: Checkpoint | None = None  # None: nothing was taught yet
    unrelated: tuple[Lesson, ...] = ()
    thresholds: Thresholds | None = None
    files: Mapping[str, RelationFiles] = field(default_factory=dict)  # relation -> its objects, once written
    unrelated_file: str = ""  # the sha256 of its object, once written
    is_old: bool = False  # written by erda 0.1.0: what the method learned is not read


@dataclass(frozen=True, slots=True, eq=False)
class RelationPart:
    """The content of a version for one relation."""

    known: Known
    kept: tuple[Example, ...] = ()
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def is_same(self, other: RelationPart | None) -> bool:
        """Whether nothing changed: equal lessons and identical array objects."""
        return (
            other is not None
            and (self.known, self.kept) == (other.known, other.kept)
            and self.rows.keys() == other.rows.keys()
            and all(tensor is other.rows[name] for name, tensor in self.rows.items())
        )


def parts_of(state: State) -> list[RelationPart]:
    """Split a version by relation."""
    if state.learned is None:
        return [RelationPart(one) for one in state.known]
    kept: dict[str, list[Example]] = {}
    for example in state.learned.kept:
        kept.setdefault(example.relation or "", []).append(example)
    rows = state.learned.rows
    return [
        RelationPart(
            one, tuple(kept.get(one.id, ())), {name: owned[one.id] for name, owned in rows.items() if one.id in owned}
        )
        for one in state.known
    ]


def now() -> str:
    """The current time in UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")
