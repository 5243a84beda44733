"""Taught examples by relation, and the content of a new teaching. `lesson_changes.py` applies it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from erda.app.inputs import Given, check_bool, example_of, known_relation, refuse_single, relation_of, says_it_holds
from erda.errors import DataError, counted, join_faults
from erda.types import NO_RELATION, Example, Relation, Task

Teachable = str | Relation | Task | Mapping[Any, Iterable[Given]] | Iterable[Given]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A taught example: its number, which `take_back` accepts, and the number of its teaching."""

    number: int
    teaching: int
    example: Example


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a person declares about a relation (`Known`)."""

    symmetric: bool
    inverse: str | None
    head_types: tuple[str, ...]
    tail_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a relation holds between the entities of a sentence, as a person says."""

    example: Example
    relation: str
    holds: bool
    identity: str = ""  # of the relation (`Known.identity`), if the judgement waits: the name can change meanwhile


@dataclass(frozen=True, slots=True)
class Known:
    """A relation with all its taught examples; `since` is the teaching that introduced it.

    A counterexample is a sentence in which the relation does not hold between the two entities; its `relation` is that
    of its owner. Declarations are made by hand: `inverse` is the id of another relation, and no types mean that the
    types are learned. `origin` and `merged` are set by a change of the name (`identity`).
    """

    relation: Relation
    since: int
    lessons: tuple[Lesson, ...] = ()
    counterexamples: tuple[Lesson, ...] = ()
    symmetric: bool = False
    inverse: str | None = None
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
    def learned_from(self) -> tuple[Relation, int, tuple[Lesson, ...]]:
        """Everything that the method learns from; counterexamples and declarations do not change the method."""
        return self.relation, self.since, self.lessons

    def before(self, teaching: int) -> Known:
        """The relation with the examples of earlier teachings only."""
        return replace(self, lessons=tuple(one for one in self.lessons if one.teaching < teaching))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content of a teaching; a counterexample names the relation that does not hold, `unrelated` sentences none."""

    relations: tuple[Relation, ...] = ()
    examples: tuple[Example, ...] = ()
    counterexamples: tuple[Example, ...] = ()
    unrelated: tuple[Example, ...] = ()


class _Reader:
    """Collects the content of a teaching and all its faults."""

    def __init__(self, known: Sequence[Relation]) -> None:
        self.known, self.faults = {one.id: one for one in known}, list[str]()
        self.relations: dict[str, Relation] = {}
        self.found: tuple[list[Example], ...] = ([], [], [])  # examples, counterexamples, unrelated
        self._ids: dict[str, str] = {}  # name in an example -> id

    def name(self, given: str | Relation, description: str = "") -> Relation:
        """Find or make a relation, which belongs to this teaching."""
        relation = relation_of(given, description, (self.known | self.relations).values())
        return self.relations.setdefault(relation.id, relation)

    def of_one(self, given: str | Relation, some: Iterable[Given], description: str = "", *, hold: bool = True) -> None:
        """Read examples of one relation, or counterexamples if it does not `hold`; a row can say so itself."""
        if given == NO_RELATION:
            self._add(some, lambda example: None, f"{NO_RELATION}: ", hold=hold)
        else:
            relation = self.name(given, description).id
            self._add(some, lambda example: relation, f"{relation}: ", hold=hold)

    def of_many(self, some: Iterable[Given], *, hold: bool = True) -> None:
        """Read examples that name their relations."""
        self._add(some, self._named, "", hold=hold)

    def _named(self, example: Example) -> str | None:
        if example.relation is None:
            raise DataError("it names no relation; give one: teach(relation, examples).")
        if example.relation == NO_RELATION:
            return None
        if example.relation not in self._ids:
            self._ids[example.relation] = self.name(example.relation).id
        return self._ids[example.relation]

    def _add(
        self, some: Iterable[Given], relation: Callable[[Example], str | None], where: str, *, hold: bool = True
    ) -> None:
        refuse_single(some)
        for place, given in enumerate(some, 1):
            try:
                example = example_of(given)
                owner = relation(example)
                is_counterexample = not (hold and says_it_holds(given))
                if owner is None and is_counterexample:
                    raise DataError("a counterexample must name the relation that does not hold.")
                self.found[2 if owner is None else int(is_counterexample)].append(replace(example, relation=owner))
            except DataError as fault:
                self.faults.append(f"{where}example {place}: {fault}")


def listed(given: Any) -> Any:
    """Copy iterators, also those in a mapping, into lists, so that `wanted` can read them twice."""
    if isinstance(given, Mapping):
        return {name: listed(some) for name, some in given.items()}
    return list(given) if isinstance(given, Iterator) else given


def wanted(
    what: Teachable,
    known: Sequence[Relation],
    *,
    examples: Iterable[Given] = (),
    counterexamples: Iterable[Given] = (),
    unrelated: Iterable[Given] = (),
    description: str = "",
) -> Wanted:
    """Read the arguments of `teach` and `teach_many`; report every fault at once."""
    reader = _Reader(known)
    if isinstance(what, str | Relation) or not isinstance(what, Task | Iterable):
        reader.of_one(what, examples, description)
        reader.of_one(what, counterexamples, hold=False)
    else:
        if isinstance(what, Mapping):
            for name, some in what.items():
                reader.of_one(name, some)
        elif isinstance(what, Task):
            for relation in what.relations:
                reader.name(relation)
            reader.of_many(what.examples)
        else:
            reader.of_many(what)
        reader.of_many(counterexamples, hold=False)
    reader.of_one(NO_RELATION, unrelated)
    if reader.faults:
        raise DataError(join_faults(reader.faults))
    if not reader.relations and not any(reader.found):
        raise DataError("nothing to teach: no relation was given.")
    return Wanted(tuple(reader.relations.values()), *map(tuple, reader.found))


def present_id(relation: str, identity: str, known: Sequence[Known]) -> str | None:
    """Find the present id of a relation that may be renamed, merged or taught again; None if it is gone."""
    by_identity = {one: own.id for own in known for one in (*own.merged, own.identity)}
    if identity in by_identity:
        return by_identity[identity]
    return relation if any(one.id == relation for one in known) else None


def judged(judgements: Iterable[Judgement], known: Sequence[Relation]) -> tuple[Wanted, str]:
    """Read judgements as a teaching of examples and counterexamples; also return its line of the history."""
    own = [(one, known_relation(one.relation, known)) for one in judgements]
    for one, _ in own:
        check_bool(one.holds, "holds")
    examples, against = (
        tuple(replace(example_of(one.example), relation=relation.id) for one, relation in own if one.holds is holds)
        for holds in (True, False)
    )
    said = f"judged {counted(len(own), 'sentence')}: {len(examples)} right, {len(against)} wrong"
    if len(own) == 1:
        said = f"judged that {own[0][1].id} {'holds' if examples else 'does not hold'}"
    relations = tuple({relation.id: relation for _, relation in own}.values())
    return Wanted(relations, examples=examples, counterexamples=against), said
