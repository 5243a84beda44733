"""Bring a method from one set of taught examples to another, as if it had only ever learned the second.

New examples are learned on top, by the same `learn` as in the benchmark. A relation that lost an example, or has a new
name or description, is relearned from its own examples. If the method trains the encoder, all relations are relearned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import replace

from erda.app.answers import Progress
from erda.app.lessons import Known
from erda.methods.base import Checkpoint, Method
from erda.types import Task


def relearned(
    method: Method,
    before: Sequence[Known],
    after: Sequence[Known],
    *,
    teaching: int,
    blank: Callable[[], Method],
    progress: Progress | None = None,
) -> Method:
    """Return a method that has learned `after`; `method`, which has learned `before`, stays unchanged.

    `teaching` is the number of the new teaching.
    """
    earlier = {one.id: one.before(teaching) for one in after if one.since < teaching}
    known = {one.id: one.learned_from for one in before}
    changed = [one for one in earlier.values() if one.learned_from != known.get(one.id)]
    gone = known.keys() - earlier.keys()
    if changed and method.trains:
        learner = replayed(blank(), list(earlier.values()), progress=progress)
    else:
        learner = forked(method)
        if method.trains:
            for relation in sorted(gone):
                learner.forget(relation)
        elif changed or gone:
            fresh = replayed(blank(), changed, progress=progress)
            learner.restore(_merged(method.checkpoint(), fresh.checkpoint(), [*earlier]))
    new = _task(after, teaching, learner.n_tasks)
    if new is not None:
        learner.learn(new)
    return learner


def replayed(method: Method, known: Sequence[Known], *, progress: Progress | None = None) -> Method:
    """Replay all teachings of these relations in order, and return the method."""
    teachings = sorted({one.since for one in known} | {lesson.teaching for one in known for lesson in one.lessons})
    for done, teaching in enumerate(teachings):
        task = _task(known, teaching, method.n_tasks)
        if task is not None:
            method.learn(task)
        if progress:
            progress(done + 1, len(teachings))
    return method


def forked(method: Method) -> Method:
    """Copy a method so that it can learn independently. Immutable parts are shared; a trained encoder is copied."""
    other = copy(method)
    other.rows = {name: dict(rows) for name, rows in method.rows.items()}
    other.shared = dict(method.shared)
    if method.trains and method.encoder.trained_state():
        other.encoder = deepcopy(method.encoder)
    return other


def _task(known: Sequence[Known], teaching: int, index: int) -> Task | None:
    """The relations and examples of one teaching as a task, in the order of teaching."""
    taught = (lesson for one in known for lesson in one.lessons if lesson.teaching == teaching)
    lessons = sorted(taught, key=lambda lesson: lesson.number)
    named = {lesson.example.relation for lesson in lessons}
    relations = tuple(one.relation for one in known if one.since == teaching or one.id in named)
    return Task(index, relations, tuple(one.example for one in lessons)) if relations else None


def _merged(old: Checkpoint, new: Checkpoint, order: Sequence[str]) -> Checkpoint:
    """Combine two checkpoints: the relations of `order`, from `new` if relearned there, else from `old`."""
    texts = {one.id: one for one in (*old.relations, *new.relations)}
    fresh = {one.id for one in new.relations}
    source = {one: new if one in fresh else old for one in order}
    rows = {
        name: {one: found.rows[name][one] for one, found in source.items() if one in found.rows.get(name, {})}
        for name in {**old.rows, **new.rows}
    }
    kept = tuple(one for one in old.kept if source.get(one.relation or "") is old) + new.kept
    return replace(old, relations=tuple(texts[one] for one in order), kept=kept, rows=rows)
