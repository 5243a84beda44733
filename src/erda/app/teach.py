"""Change what was taught: add, take back, rename, describe, declare, merge; find examples that look reversed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from erda.answers import Moved, Taught
from erda.app.inputs import ExampleInput, Teaching, check_bool, example_of, find_relation, known_relation, relation_of
from erda.app.state import Judgement, Lesson, Setup, State, TaughtRelation
from erda.encoders.contract import Encoder, unit_rows
from erda.errors import DataError, counted
from erda.methods import find_method
from erda.text.descriptions import patterns_of
from erda.text.marks import example_to_marks
from erda.types import NO_RELATION, Example, Relation, pair_in_sentence

REVERSED, TYPE_WEIGHT = -0.425, 0.5  # fitted on FewRel and Re-DocRED: 1 in 100 right examples is reported
MOST_OTHERS, MOST_CHECKED = 20, 100  # examples to compare with; larger teachings are not checked


def judged(judgements: Iterable[Judgement], known: Sequence[Relation]) -> Teaching:
    """Read judgements as a teaching of examples and counterexamples."""
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
    return Teaching(relations, examples, against, said=said, is_judged=True)


# -- changes of what was taught ----------------------------------------------------------------------------------------


class _Growing:
    """The lessons of an extractor while a teaching is added to them; the latest statement about a pair counts."""

    def __init__(self, state: State, new: Teaching) -> None:
        self.lessons = {one.id: list(one.lessons) for one in state.known}
        self.counterexamples = {one.id: list(one.counterexamples) for one in state.known}
        self.unrelated = list(state.unrelated)
        self.taught = {_pair(one): (name, one) for name, own in self.lessons.items() for one in own}
        self.denied = {(name, _pair(one)): one for name, own in self.counterexamples.items() for one in own}
        self.apart = {_pair(one): one for one in state.unrelated}
        self.teaching, self.n_lessons = state.stamp.n_teachings, state.stamp.n_lessons
        self.is_task, self.is_judged = new.is_task, new.is_judged
        self.duplicates, self.moved = list[Example](), list[Moved]()

    def all(self, add: Callable[[Example], None], examples: Iterable[Example]) -> int:
        """Add examples in one of the ways below; return the number of new lessons."""
        before = self.n_lessons
        for one in examples:
            add(one)
        return self.n_lessons - before

    def example(self, example: Example) -> None:
        """Add an example to its relation; remove the pair from other relations and from its counterexamples."""
        name, pair = str(example.relation), pair_in_sentence(example)
        if not self.is_task:
            owner, known = self.taught.get(pair, ("", None))
            if known and owner == name:
                self.duplicates.append(example)
                if known.is_judged and not self.is_judged:  # taught and judged: it counts as taught
                    self.taught[pair] = name, replace(known, is_judged=False)
                    self.lessons[name][self.lessons[name].index(known)] = self.taught[pair][1]
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
        return Lesson(self.n_lessons - 1, self.teaching, example, self.is_judged)


def added(state: State, new: Teaching) -> tuple[State, Taught]:
    """Add a teaching, and report it. Known examples are skipped; an example of another relation moves."""
    growing = _Growing(state, new)
    teaching, by_name = state.stamp.n_teachings, reads_names(state.stamp.setup)
    n_examples = growing.all(growing.example, new.examples)
    n_counterexamples = growing.all(growing.counterexample, new.counterexamples)
    n_unrelated = growing.all(growing.none, new.unrelated)
    old = {one.id: one for one in state.known}
    texts = {one.id: one.relation for one in state.known} | {one.id: one for one in new.relations}
    denied = {str(one.relation) for one in new.counterexamples}
    after, gone = list[TaughtRelation](), list[str]()
    for name, relation in texts.items():
        own, was = tuple(growing.lessons.get(name, ())), old.get(name)
        if not own and not by_name:
            if was is None and name not in growing.lessons:
                raise DataError(f"relation '{name}' has no example; this method learns from examples only.")
            if name in denied:
                raise DataError(f"This is the only example of '{name}'; forget('{name}') drops the relation.")
            gone.append(name)
            continue
        stays = was is not None and (by_name or own[0].teaching < teaching)
        after.append(
            replace(
                was or TaughtRelation(relation, teaching),
                relation=relation,
                since=was.since if was and stays else teaching,
                origin="" if was is None else was.origin if stays else was.identity,
                lessons=own,
                counterexamples=tuple(growing.counterexamples.get(name, ())),
            )
        )
    patterns = {one.id: patterns_of(one.relation.description) for one in state.known}
    report = Taught(
        state.stamp.number,
        tuple(one.id for one in after if one.id not in old),
        n_examples,
        tuple(growing.duplicates),
        tuple(growing.moved),
        tuple(gone),
        tuple(one.id for one in after if one.id in old and one.relation != old[one.id].relation),
        n_counterexamples,
        n_unrelated,
        sum(line not in patterns.get(one.id, ()) for one in after for line in patterns_of(one.relation.description)),
    )
    said = new.said or f"taught {', '.join(one.id for one in new.relations) or NO_RELATION}"
    if report.described and not any((report.new, report.moved, n_examples, n_counterexamples, n_unrelated)):
        said = f"described {', '.join(report.described)}"
    done = state.changed(said, known=tuple(after), unrelated=tuple(growing.unrelated))
    return replace(done, stamp=replace(done.stamp, n_teachings=teaching + 1, n_lessons=growing.n_lessons)), report


# -- direction ---------------------------------------------------------------------------------------------------------


def reversed_examples(state: State, encoder: Encoder) -> list[Example]:
    """Find new examples that look like the reverse of the others of their relation: head and tail are exchanged.

    `state` is the state after a teaching. With d_i, the vector of example i minus its vector with head and tail
    exchanged, a new example y scores mean(d_i . d_y) / mean(|d|^2) over n others, plus `TYPE_WEIGHT` for equal entity
    types and minus it for exchanged ones. A score below `REVERSED` / sqrt(n) is reported (tools/fit_direction.py).
    """
    found = list[Example]()
    for known in state.known:
        new = [one.example for one in known.lessons if one.teaching == state.stamp.n_teachings - 1]
        examples = [*(one.example for one in known.lessons[: len(known.lessons) - len(new)])][-MOST_OTHERS:] + new
        if new and 1 < len(examples) <= MOST_OTHERS + MOST_CHECKED:
            scores = direction_scores(examples, encoder)[len(examples) - len(new) :]
            found += [one for one, score in zip(new, scores, strict=True) if score < REVERSED]
    return found


def direction_scores(examples: Sequence[Example], encoder: Encoder) -> np.ndarray:
    """Score each example against the others, times sqrt(n) of n others: [n_examples]; negative if it looks reversed."""
    vectors = unit_rows(encoder.embed([*examples, *map(exchanged, examples)]))
    apart = vectors[: len(examples)] - vectors[len(examples) :]
    products = apart @ apart.T
    products /= max(float(np.trace(products)) / len(examples), 1e-9)
    types = [(one.head.type, one.tail.type) for one in examples]
    products += TYPE_WEIGHT * np.array([[_same_types(one, other) for other in types] for one in types])
    np.fill_diagonal(products, 0)
    return np.asarray(products.sum(axis=1) / np.sqrt(len(examples) - 1))


def _same_types(one: tuple[str | None, str | None], other: tuple[str | None, str | None]) -> float:
    """1 if both types are equal, -1 if they are exchanged, 0 if they are unknown or all the same."""
    (head, tail), (first, second) = one, other
    if not (head and tail and first and second):
        return 0.0
    return ((head == first) + (tail == second) - (head == second) - (tail == first)) / 2


def exchanged(example: Example) -> Example:
    """The example with head and tail exchanged."""
    return replace(example, head=example.tail, tail=example.head)


def statement(example: Example, relation: str | None = None) -> str:
    """An example in short: Tesla -> founded by -> Martin Eberhard."""
    return f"{example.head.name} -> {relation or example.relation} -> {example.tail.name}"


def reversal_warning(example: Example) -> str:
    """Say that an example looks reversed, and how to mark it otherwise."""
    return (
        f"'{statement(example)}' looks like the reverse of the other examples of '{example.relation}'. If it is, take "
        f"it back and teach: {example_to_marks(exchanged(example))}"
    )


def reads_names(setup: Setup) -> bool:
    """Whether the method can learn a relation from its name alone."""
    return find_method(setup.method).reads_names and bool(setup.settings.get("name_weight", True))


def counterexamples_of(relation: str) -> str:
    """The place of a relation's counterexamples, in reports."""
    return f"counterexamples of {relation}"


def _pair(lesson: Lesson) -> tuple[object, ...]:
    return pair_in_sentence(lesson.example)


def taken_back(state: State, chosen: Sequence[int | ExampleInput]) -> State:
    """Remove examples, counterexamples or unrelated sentences, selected by their numbers or content."""
    by_name, places, known, unrelated = reads_names(state.stamp.setup), list[str](), state.known, state.unrelated
    for which in chosen:
        key, n_places = None if isinstance(which, int) else pair_in_sentence(example_of(which)), len(places)

        def stays(lesson: Lesson, which: object = which, key: object = key) -> bool:
            return lesson.number != which if key is None else _pair(lesson) != key

        after = list[TaughtRelation]()
        for one in known:
            lessons, against = tuple(filter(stays, one.lessons)), tuple(filter(stays, one.counterexamples))
            if one.lessons and not lessons and not by_name:
                raise DataError(f"This is the only example of '{one.id}'; forget('{one.id}') drops the relation.")
            places += [one.id] if lessons != one.lessons else []
            places += [counterexamples_of(one.id)] if against != one.counterexamples else []
            after.append(replace(one, lessons=lessons, counterexamples=against))
        rest = tuple(filter(stays, unrelated))
        places += [NO_RELATION] if len(rest) < len(unrelated) else []
        if len(places) == n_places:
            raise DataError("No such example was taught; examples(relation) lists them with their numbers.")
        known, unrelated = tuple(after), rest
    n = "an example" if len(chosen) == 1 else f"{len(chosen)} examples"
    return state.changed(f"took back {n} of {', '.join(dict.fromkeys(places))}", known=known, unrelated=unrelated)


def renamed(state: State, relation: str, new_name: str | Relation) -> State:
    """Give a relation another id and name."""
    old = known_relation(relation, state.relations)
    own = new_name.description if isinstance(new_name, Relation) else ""
    new = relation_of(new_name, own or old.description)
    if new == old:
        raise DataError(f"The relation is called '{old.id}' already.")
    if taken := find_relation(new.id, (one for one in state.relations if one is not old)):
        raise DataError(f"'{taken.id}' exists already; to combine them, merge '{old.id}' into '{taken.id}'.")
    known = (
        replace(_as_relation(one, new), origin=one.identity) if one.relation is old else one for one in state.known
    )
    thresholds = state.thresholds and state.thresholds.renamed(old.id, new.id)
    return state.changed(f"renamed {old.id} to {new.id}", known=tuple(known), thresholds=thresholds)


def redescribed(state: State, relation: str, description: str) -> State:
    """Give a relation another description; an empty text removes it."""
    old = known_relation(relation, state.relations)
    new = relation_of(Relation(old.id, old.name), description)
    known = tuple(replace(one, relation=new) if one.relation is old else one for one in state.known)
    done = "described" if description.strip() else "removed the description of"
    return state.changed(f"{done} {old.id}", known=known)


def declared(state: State, relation: str, **types: Any) -> State:
    """Give a relation other entity types."""
    found = known_relation(relation, state.relations)
    known = tuple(replace(one, **types) if one.relation is found else one for one in state.known)
    return state.changed(f"declared {found.id}", known=known)


def combined(state: State, relation: str, into: str) -> State:
    """Move all examples and patterns of one relation into another, and drop the first."""
    source, target = (known_relation(one, state.relations).id for one in (relation, into))
    if source == target:
        raise DataError(f"'{source}' cannot be merged into itself; name two relations.")
    by_id = {one.id: one for one in state.known}
    lines = [by_id[target].relation.description, *patterns_of(by_id[source].relation.description)]
    text = relation_of(replace(by_id[target].relation, description="\n".join(lines)))
    goal, moved = _as_relation(by_id[target], text), _as_relation(by_id[source], text)
    lessons = _in_order(*goal.lessons, *moved.lessons)
    held = {_pair(one) for one in lessons}
    against = {_pair(one): one for one in (*moved.counterexamples, *goal.counterexamples) if _pair(one) not in held}
    both = replace(
        goal,
        since=min(goal.since, moved.since),
        lessons=lessons,
        counterexamples=_in_order(*against.values()),
        origin=goal.identity,
        merged=(*goal.merged, by_id[source].identity, *moved.merged),
    )
    known = tuple(both if one.id == target else one for one in state.known if one.id != source)
    return state.changed(f"merged {source} into {target}", known=known)


def _in_order(*lessons: Lesson) -> tuple[Lesson, ...]:
    return tuple(sorted(lessons, key=lambda lesson: lesson.number))


def _as_relation(known: TaughtRelation, relation: Relation) -> TaughtRelation:
    def owned(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
        return tuple(replace(one, example=replace(one.example, relation=relation.id)) for one in lessons)

    own, against = owned(known.lessons), owned(known.counterexamples)
    return replace(known, relation=relation, lessons=own, counterexamples=against)
