"""From what was known and what is to be known, a method that knows it, as if it had never been taught anything else.

What is only new is learned on top, by the same `learn` as in the benchmark. A relation that lost an example or was
described anew is learned again from its own examples, teaching by teaching; where learning changes the encoder,
everything is.
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
    """A method that knows `after`, out of one that knows `before` and stays as it is; `teaching` is the new one."""
    earlier = {one.id: one.before(teaching) for one in after if one.since < teaching}
    known = {one.id: one for one in before}
    changed = [one for one in earlier.values() if one != known.get(one.id)]
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
    """The method after every teaching of these relations, in their order."""
    teachings = sorted({one.since for one in known} | {lesson.teaching for one in known for lesson in one.lessons})
    for done, teaching in enumerate(teachings):
        task = _task(known, teaching, method.n_tasks)
        if task is not None:
            method.learn(task)
        if progress:
            progress(done + 1, len(teachings))
    return method


def forked(method: Method) -> Method:
    """The same method, to learn on its own. They share what neither changes; an encoder that is trained is copied."""
    other = copy(method)
    other.rows = {name: dict(rows) for name, rows in method.rows.items()}
    other.shared = dict(method.shared)
    if method.trains and method.encoder.trained_state():
        other.encoder = deepcopy(method.encoder)
    return other


def _task(known: Sequence[Known], teaching: int, index: int) -> Task | None:
    """What one teaching brought, as a task; the examples in the order in which they were taught."""
    taught = (lesson for one in known for lesson in one.lessons if lesson.teaching == teaching)
    lessons = sorted(taught, key=lambda lesson: lesson.number)
    named = {lesson.example.relation for lesson in lessons}
    relations = tuple(one.relation for one in known if one.since == teaching or one.id in named)
    return Task(index, relations, tuple(one.example for one in lessons)) if relations else None


def _merged(old: Checkpoint, new: Checkpoint, order: Sequence[str]) -> Checkpoint:
    """The relations named in `order`: as in `new` where they were learned anew, else as in `old`."""
    texts = {one.id: one for one in (*old.relations, *new.relations)}
    fresh = {one.id for one in new.relations}
    source = {one: new if one in fresh else old for one in order}
    rows = {
        name: {one: found.rows[name][one] for one, found in source.items() if one in found.rows.get(name, {})}
        for name in {**old.rows, **new.rows}
    }
    kept = tuple(one for one in old.kept if source.get(one.relation or "") is old) + new.kept
    return replace(old, relations=tuple(texts[one] for one in order), kept=kept, rows=rows)
