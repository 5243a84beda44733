"""A version of an extractor in memory: what it is, what was taught, and what the method made of it.

`store.py` keeps it on the disk. NumPy is not loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from erda.app.lessons import Known
from erda.encoders.settings import EncoderSpec
from erda.types import Example

if TYPE_CHECKING:
    import numpy as np

    from erda.methods.base import Checkpoint


@dataclass(frozen=True, slots=True)
class Setup:
    """A method by name with its settings, over an encoder: what rebuilds it."""

    method: str
    settings: Mapping[str, bool | int | float | str]
    encoder: EncoderSpec


TAUGHT_BY_0_1 = (
    "was taught by erda 0.1.0, and can only be listed. Take it over with relearn=True (erda teach --relearn), which "
    "teaches all its examples again."
)
NOTHING = Setup("", {}, EncoderSpec("", {}, ""))  # of an extractor that was never written


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a version is, beside what it knows: how it came to be, on what it stands, what is counted on."""

    number: int
    parent: int | None
    time: str
    what: str
    setup: Setup
    n_teachings: int = 0
    n_lessons: int = 0
    identity: str = ""  # random; tells versions with the same number apart


@dataclass(frozen=True, slots=True)
class RelationFiles:
    """The objects of a relation, by their sha256; `rows` is empty where the method keeps nothing of it."""

    about: str
    rows: str
    n_examples: int


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A version in memory: what was taught, and what the method made of it."""

    stamp: Stamp
    known: tuple[Known, ...] = ()  # in the order of the method
    learned: Checkpoint | None = None  # None: nothing was taught yet
    files: Mapping[str, RelationFiles] = field(default_factory=dict)  # relation -> its objects, once written
    is_old: bool = False  # written by erda 0.1.0: what the method learned is not read


@dataclass(frozen=True, slots=True, eq=False)
class RelationPart:
    """What a version holds of one relation."""

    known: Known
    kept: tuple[Example, ...] = ()
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def is_same(self, other: RelationPart | None) -> bool:
        """Whether nothing has happened to it: the same lessons, the very same tensors."""
        return (
            other is not None
            and (self.known, self.kept) == (other.known, other.kept)
            and self.rows.keys() == other.rows.keys()
            and all(tensor is other.rows[name] for name, tensor in self.rows.items())
        )


def parts_of(state: State) -> list[RelationPart]:
    """What a version holds, relation by relation."""
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
