"""Read a teaching, and change what was taught: add, take back, rename, describe, declare, merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from erda.answers import Moved, Taught
from erda.app.inputs import (
    Given,
    check_bool,
    example_of,
    find_relation,
    known_relation,
    refuse_single,
    relation_of,
    says_it_holds,
)
from erda.app.state import Declaration, Judgement, Known, Lesson, without_lost_inverses
from erda.errors import DataError, counted, join_faults
from erda.text.descriptions import patterns_of
from erda.types import NO_RELATION, Example, Relation, Task, pair_in_sentence

Teachable = str | Relation | Task | Mapping[Any, Iterable[Given]] | Iterable[Given]


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


@dataclass(frozen=True, slots=True)
class Addition:
    """All relations and unrelated sentences after a teaching, and what happened to its examples."""

    known: tuple[Known, ...]
    unrelated: tuple[Lesson, ...]
    n_lessons: int  # the next number of a lesson
    duplicates: tuple[Example, ...]
    moved: tuple[Moved, ...]
    forgotten: tuple[str, ...]
    n_new: tuple[int, int, int]  # examples, counterexamples, unrelated sentences

    def taught(self, before: Sequence[Known], version: int) -> Taught:
        """The report of the teaching that led from `before` to `version`."""
        old = {one.id: one.relation for one in before}
        n_examples, n_counterexamples, n_unrelated = self.n_new
        patterns = {one.id: patterns_of(one.relation.description) for one in before}
        return Taught(
            version,
            tuple(one.id for one in self.known if one.id not in old),
            n_examples,
            self.duplicates,
            self.moved,
            self.forgotten,
            tuple(one.id for one in self.known if one.relation != old.get(one.id, one.relation)),
            n_counterexamples,
            n_unrelated,
            sum(
                line not in patterns.get(one.id, ())
                for one in self.known
                for line in patterns_of(one.relation.description)
            ),
        )


class _Growing:
    """The lessons of an extractor while a teaching is added to them; the latest statement about a pair counts."""

    def __init__(self, known: Sequence[Known], unrelated: Sequence[Lesson], *, teaching: int, n_lessons: int) -> None:
        self.lessons = {one.id: list(one.lessons) for one in known}
        self.counterexamples = {one.id: list(one.counterexamples) for one in known}
        self.unrelated = list(unrelated)
        self.taught = {_pair(one): (name, one) for name, own in self.lessons.items() for one in own}
        self.denied = {(name, _pair(one)): one for name, own in self.counterexamples.items() for one in own}
        self.apart = {_pair(one): one for one in unrelated}
        self.teaching, self.n_lessons = teaching, n_lessons
        self.duplicates, self.moved = list[Example](), list[Moved]()

    def add(self, new: Wanted, *, as_it_stands: bool) -> tuple[int, int, int]:
        """Add a teaching; return its numbers of new examples, counterexamples and unrelated sentences."""
        counts = [self.n_lessons]
        for example in new.examples:
            self.example(example, as_it_stands=as_it_stands)
        counts.append(self.n_lessons)
        for example in new.counterexamples:
            self.counterexample(example)
        counts.append(self.n_lessons)
        for example in new.unrelated:
            self.none(example)
        return counts[1] - counts[0], counts[2] - counts[1], self.n_lessons - counts[2]

    def example(self, example: Example, *, as_it_stands: bool = False) -> None:
        """Add an example to its relation; remove the pair from other relations and from its counterexamples."""
        name, pair = str(example.relation), pair_in_sentence(example)
        if not as_it_stands:
            if pair in self.taught and self.taught[pair][0] == name:
                self.duplicates.append(example)
                return
            self._untaught(example, name)
            if denied := self.denied.pop((name, pair), None):
                self.counterexamples[name].remove(denied)
                self.moved.append(Moved(example, counterexamples_of(name), name))
            if apart := self.apart.pop(pair, None):
                self.unrelated.remove(apart)
                self.moved.append(Moved(example, NO_RELATION, name))
        lesson = self._lesson(example)
        self.taught[pair] = name, lesson
        self.lessons.setdefault(name, []).append(lesson)

    def counterexample(self, example: Example) -> None:
        """Add a counterexample to its relation; the pair can be an example of another relation."""
        name, pair = str(example.relation), pair_in_sentence(example)
        if (name, pair) in self.denied:
            self.duplicates.append(example)
            return
        if pair in self.taught and self.taught[pair][0] == name:
            self._untaught(example, counterexamples_of(name))
        self.denied[name, pair] = self._lesson(example)
        self.counterexamples.setdefault(name, []).append(self.denied[name, pair])

    def none(self, example: Example) -> None:
        """Add a sentence in which no relation holds."""
        pair = pair_in_sentence(example)
        if pair in self.apart:
            self.duplicates.append(example)
            return
        self._untaught(example, NO_RELATION)
        self.apart[pair] = self._lesson(example)
        self.unrelated.append(self.apart[pair])

    def _untaught(self, example: Example, after: str) -> None:
        if pair := self.taught.pop(pair_in_sentence(example), None):
            before, lesson = pair
            self.lessons[before].remove(lesson)
            self.moved.append(Moved(example, before, after))

    def _lesson(self, example: Example) -> Lesson:
        self.n_lessons += 1
        return Lesson(self.n_lessons - 1, self.teaching, example)


def added(
    known: Sequence[Known],
    unrelated: Sequence[Lesson],
    new: Wanted,
    *,
    teaching: int,
    n_lessons: int,
    by_name: bool,
    as_it_stands: bool = False,
) -> Addition:
    """Add `new` to the lessons. Known examples are skipped; an example of another relation moves.

    `by_name`: a relation can have no example. `as_it_stands`: keep every example, duplicates included.
    """
    growing = _Growing(known, unrelated, teaching=teaching, n_lessons=n_lessons)
    n_new = growing.add(new, as_it_stands=as_it_stands)
    old = {one.id: one for one in known}
    texts = {one.id: one.relation for one in known} | {one.id: one for one in new.relations}
    denied = {str(one.relation) for one in new.counterexamples}
    after, forgotten = list[Known](), list[str]()
    for name, relation in texts.items():
        own, was = tuple(growing.lessons.get(name, ())), old.get(name)
        if not own and not by_name:
            if was is None and name not in growing.lessons:
                raise DataError(f"relation '{name}' has no example; this method learns from examples only.")
            if name in denied:
                raise DataError(f"This is the only example of '{name}'; forget('{name}') drops the relation.")
            forgotten.append(name)
            continue
        stays = was is not None and (by_name or own[0].teaching < teaching)
        after.append(
            replace(
                was or Known(relation, teaching),
                relation=relation,
                since=was.since if was and stays else teaching,
                origin="" if was is None else was.origin if stays else was.identity,
                lessons=own,
                counterexamples=tuple(growing.counterexamples.get(name, ())),
            )
        )
    return Addition(
        without_lost_inverses(after),
        tuple(growing.unrelated),
        growing.n_lessons,
        tuple(growing.duplicates),
        tuple(growing.moved),
        tuple(forgotten),
        n_new,
    )


def counterexamples_of(relation: str) -> str:
    """The place of a relation's counterexamples, in reports."""
    return f"counterexamples of {relation}"


def _pair(lesson: Lesson) -> tuple[object, ...]:
    return pair_in_sentence(lesson.example)


@dataclass(frozen=True, slots=True)
class Removal:
    """All relations and unrelated sentences after `take_back`, and where the removed sentences were."""

    known: tuple[Known, ...]
    unrelated: tuple[Lesson, ...]
    places: tuple[str, ...]


def taken_back(known: Sequence[Known], unrelated: Sequence[Lesson], which: int | Given, *, by_name: bool) -> Removal:
    """Remove an example, a counterexample or an unrelated sentence, selected by its number or content."""
    key = None if isinstance(which, int) else pair_in_sentence(example_of(which))

    def stays(lesson: Lesson) -> bool:
        return lesson.number != which if key is None else _pair(lesson) != key

    after, places = list[Known](), list[str]()
    for one in known:
        lessons, against = tuple(filter(stays, one.lessons)), tuple(filter(stays, one.counterexamples))
        if one.lessons and not lessons and not by_name:
            raise DataError(f"This is the only example of '{one.id}'; forget('{one.id}') drops the relation.")
        places += [one.id] if lessons != one.lessons else []
        places += [counterexamples_of(one.id)] if against != one.counterexamples else []
        after.append(replace(one, lessons=lessons, counterexamples=against))
    rest = tuple(filter(stays, unrelated))
    places += [NO_RELATION] if len(rest) < len(unrelated) else []
    if not places:
        raise DataError("No such example was taught; examples(relation) lists them with their numbers.")
    return Removal(tuple(after), rest, tuple(places))


def renamed(known: Sequence[Known], old: Relation, new_name: str | Relation) -> tuple[Known, ...]:
    """The known relations with another id and name for one of them."""
    others = [one.relation for one in known if one.relation is not old]
    own = new_name.description if isinstance(new_name, Relation) else ""
    new = relation_of(new_name, own or old.description)
    if new == old:
        raise DataError(f"The relation is called '{old.id}' already.")
    if taken := find_relation(new.id, others):
        raise DataError(f"'{taken.id}' exists already; to combine them, merge '{old.id}' into '{taken.id}'.")
    after = (replace(_as_relation(one, new), origin=one.identity) if one.relation is old else one for one in known)
    return tuple(replace(one, inverse=new.id) if one.inverse == old.id else one for one in after)


def described(known: Sequence[Known], relation: Relation, description: str) -> tuple[Known, ...]:
    """The known relations with another description for one of them; an empty text removes it."""
    if not isinstance(description, str):
        raise DataError(f"description: expected a text, got {description!r:.80}.")
    plain = relation_of(Relation(relation.id, relation.name, description))
    return tuple(replace(one, relation=plain) if one.relation is relation else one for one in known)


def declared(known: Sequence[Known], relation: str, new: Declaration) -> tuple[Known, ...]:
    """The known relations with other declarations for one of them; its inverse names it in turn."""
    by_id = {one.id: one for one in known}
    one = by_id[relation]
    for other in (one.inverse, new.inverse):
        if other is not None and by_id[other].inverse is not None:
            partner = by_id[other].inverse
            by_id[str(partner)] = replace(by_id[str(partner)], inverse=None)
            by_id[other] = replace(by_id[other], inverse=None)
    by_id[relation] = replace(by_id[relation], **asdict(new))
    if new.inverse is not None:
        if new.inverse == relation:
            raise DataError(f"'{relation}' cannot be its own inverse; declare it symmetric.")
        if new.symmetric or by_id[new.inverse].symmetric:
            raise DataError("A symmetric relation has no inverse; declare one of the two.")
        by_id[new.inverse] = replace(by_id[new.inverse], inverse=relation)
    return tuple(by_id.values())


def merged(known: Sequence[Known], source: str, target: str) -> tuple[Known, ...]:
    """The known relations with all examples and patterns of `source` moved to `target`, and `source` dropped."""
    if source == target:
        raise DataError(f"'{source}' cannot be merged into itself; name two relations.")
    by_id = {one.id: one for one in known}
    lines = [by_id[target].relation.description, *patterns_of(by_id[source].relation.description)]
    text = relation_of(replace(by_id[target].relation, description="\n".join(lines)))
    goal, moved = _as_relation(by_id[target], text), _as_relation(by_id[source], text)
    lessons = _in_order(*goal.lessons, *moved.lessons)
    held = {_pair(one) for one in lessons}
    against = {_pair(one): one for one in (*moved.counterexamples, *goal.counterexamples) if _pair(one) not in held}
    since = min(goal.since, moved.since)
    both = replace(
        goal,
        since=since,
        lessons=lessons,
        counterexamples=_in_order(*against.values()),
        origin=goal.identity,
        merged=(*goal.merged, by_id[source].identity, *moved.merged),
    )
    return without_lost_inverses(both if one.id == target else one for one in known if one.id != source)


def _in_order(*lessons: Lesson) -> tuple[Lesson, ...]:
    return tuple(sorted(lessons, key=lambda lesson: lesson.number))


def _as_relation(known: Known, relation: Relation) -> Known:
    def owned(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
        return tuple(replace(one, example=replace(one.example, relation=relation.id)) for one in lessons)

    own, against = owned(known.lessons), owned(known.counterexamples)
    return replace(known, relation=relation, lessons=own, counterexamples=against)
