"""Taught examples by relation, and how a new teaching changes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from erda.app.answers import Moved
from erda.app.inputs import Given, example_of, examples_of, find_relation, refuse_lookalikes, relation_of
from erda.data.dataset import pair_in_sentence
from erda.errors import DataError, join_faults
from erda.text.relation_names import spaced
from erda.types import Example, Relation, Task

Teachable = str | Relation | Task | Mapping[Any, Iterable[Given]] | Iterable[Given]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A taught example: its number, which `take_back` accepts, and the number of its teaching."""

    number: int
    teaching: int
    example: Example


@dataclass(frozen=True, slots=True)
class Known:
    """A relation with all its taught examples; `since` is the teaching that introduced it."""

    relation: Relation
    since: int
    lessons: tuple[Lesson, ...] = ()

    @property
    def id(self) -> str:
        """Id of the relation."""
        return self.relation.id

    def before(self, teaching: int) -> Known:
        """The relation with the examples of earlier teachings only."""
        return replace(self, lessons=tuple(one for one in self.lessons if one.teaching < teaching))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content of a teaching: relations, and examples that name theirs, in the order given."""

    relations: tuple[Relation, ...]
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Addition:
    """All relations after a teaching, and what happened to its examples."""

    known: tuple[Known, ...]
    n_lessons: int
    duplicates: tuple[Example, ...]
    moved: tuple[Moved, ...]
    forgotten: tuple[str, ...]


def wanted(what: Teachable, examples: Iterable[Given], description: str, known: Sequence[Relation]) -> Wanted:
    """Read the arguments of `teach` and `teach_many`; report every fault at once."""
    faults: list[str] = []
    relations: dict[str, Relation] = {}
    found: list[Example] = []

    def add(name: str | Relation, some: Iterable[Given], words: str = "") -> None:
        relation = relation_of(name, words, (*known, *relations.values()))
        relations[relation.id] = relation
        try:
            found.extend(examples_of(some, relation.id))
        except DataError as fault:
            faults.append(str(fault))

    if isinstance(what, str | Relation) or not isinstance(what, Task | Iterable):
        add(what, examples, description)
    elif isinstance(what, Mapping):
        for name, some in what.items():
            add(name, some)
    else:
        named = {one.id: one for one in what.relations} if isinstance(what, Task) else {}
        relations |= {name: relation_of(one, known=known) for name, one in named.items()}
        for place, given in enumerate(what.examples if isinstance(what, Task) else what, 1):
            try:
                example = example_of(given)
                if example.relation is None:
                    raise DataError("it carries no relation; name one: teach(relation, examples).")
                if example.relation not in relations:
                    relations[example.relation] = relation_of(example.relation, known=(*known, *relations.values()))
                found.append(replace(example, relation=relations[example.relation].id))
            except DataError as fault:
                faults.append(f"example {place}: {fault}")
    if faults:
        raise DataError(join_faults(faults))
    if not relations:
        raise DataError("nothing to teach: no relation was given.")
    return Wanted(tuple({one.id: one for one in relations.values()}.values()), tuple(found))


def added(
    known: Sequence[Known], new: Wanted, *, teaching: int, n_lessons: int, by_name: bool, as_it_stands: bool = False
) -> Addition:
    """Add `new` to the known relations. Known examples are skipped; an example of another relation moves.

    `by_name`: a relation can have no example. `as_it_stands`: keep every example, duplicates included.
    """
    old = {one.id: one for one in known}
    lessons = {one.id: list(one.lessons) for one in known}
    texts = {one.id: one.relation for one in known} | {one.id: one for one in new.relations}
    taught = {pair_in_sentence(one.example): one for own in lessons.values() for one in own}
    duplicates, moved = list[Example](), list[Moved]()
    for example in new.examples:
        name, key = str(example.relation), pair_in_sentence(example)
        earlier = None if as_it_stands else taught.get(key)
        if earlier and earlier.example.relation == name:
            duplicates.append(example)
            continue
        if earlier:
            before = str(earlier.example.relation)
            lessons[before].remove(earlier)
            moved.append(Moved(example, before, name))
        taught[key] = Lesson(n_lessons, teaching, example)
        lessons.setdefault(name, []).append(taught[key])
        n_lessons += 1
    after, forgotten = list[Known](), list[str]()
    for name, relation in texts.items():
        own, was = tuple(lessons.get(name, ())), old.get(name)
        if not own and not by_name:
            if was is None and name not in lessons:
                raise DataError(f"relation '{name}' has no example; this method learns by examples alone.")
            forgotten.append(name)
            continue
        stays = was is not None and (by_name or own[0].teaching < teaching)
        after.append(Known(relation, was.since if was and stays else teaching, own))
    return Addition(tuple(after), n_lessons, tuple(duplicates), tuple(moved), tuple(forgotten))


def taken_back(known: Sequence[Known], which: int | Given, *, by_name: bool) -> tuple[Known, ...]:
    """The known relations without one example, selected by its number or content."""
    if isinstance(which, int):
        gone = {which}
    else:
        key = pair_in_sentence(example_of(which))
        gone = {one.number for own in known for one in own.lessons if pair_in_sentence(one.example) == key}
    after = [replace(one, lessons=tuple(le for le in one.lessons if le.number not in gone)) for one in known]
    if after == list(known):
        raise DataError("No such example was taught; examples(relation) lists them with their numbers.")
    for one, was in zip(after, known, strict=True):
        if was.lessons and not one.lessons and not by_name:
            raise DataError(f"It is the only example of '{one.id}'; forget('{one.id}') drops the relation.")
    return tuple(after)


def renamed(known: Sequence[Known], old: Relation, new_name: str | Relation) -> tuple[Known, ...]:
    """The known relations with another id and name for one of them."""
    others = [one.relation for one in known if one.relation is not old]
    own = new_name.description if isinstance(new_name, Relation) else ""
    new = relation_of(new_name, own or old.description)
    if new == old:
        raise DataError(f"The relation is called '{old.id}' already.")
    if taken := find_relation(new.id, others):
        raise DataError(f"'{taken.id}' exists already; to unite the two, merge '{old.id}' into '{taken.id}'.")
    refuse_lookalikes([new], others)
    return tuple(_as_relation(one, new) if one.relation is old else one for one in known)


def described(known: Sequence[Known], relation: Relation, description: str) -> tuple[Known, ...]:
    """The known relations with another description for one of them; an empty text removes it."""
    plain = relation_of(Relation(relation.id, relation.name, spaced(description)))
    return tuple(replace(one, relation=plain) if one.relation is relation else one for one in known)


def merged(known: Sequence[Known], source: str, target: str) -> tuple[Known, ...]:
    """The known relations with all examples of `source` moved to `target`, and `source` dropped."""
    if source == target:
        raise DataError(f"'{source}' cannot be merged into itself; name two relations.")
    by_id = {one.id: one for one in known}
    goal, moved = by_id[target], _as_relation(by_id[source], by_id[target].relation)
    lessons = tuple(sorted((*goal.lessons, *moved.lessons), key=lambda lesson: lesson.number))
    both = replace(goal, since=min(goal.since, moved.since), lessons=lessons)
    return tuple(both if one.id == target else one for one in known if one.id != source)


def _as_relation(known: Known, relation: Relation) -> Known:
    lessons = tuple(replace(one, example=replace(one.example, relation=relation.id)) for one in known.lessons)
    return replace(known, relation=relation, lessons=lessons)
