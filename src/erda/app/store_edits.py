"""Changes of a store that need neither the encoder nor the arrays of the method: go back, and forget a relation.

They change the files of a version and share its objects, so that a command loads neither NumPy nor an encoder. What a
method has learned from one relation is independent of the others, so dropping its objects is all that `Method.forget`
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from erda.app.inputs import known_relation
from erda.app.lesson_changes import without_lost_inverses
from erda.app.state import Stamp, now
from erda.app.store import Store
from erda.app.store_format import RelationFile, VersionFile
from erda.errors import DataError


def undo(store: Store) -> Stamp:
    """Make the version before the current one the current one; return the stamp of the version that was undone."""
    with _changing(store) as current:
        if current.stamp.parent is None:
            raise DataError("There is nothing to undo: this is the first version.")
        store.verify(current.stamp.parent)
        store.point(current.stamp.parent)
        return current.stamp


def forget(store: Store, relation: str) -> int:
    """Write a version without a relation and make it current; return its number."""
    with _changing(store) as current:
        abouts = {files: store.objects.read_about(files) for files in current.relations}
        gone = known_relation(relation, (about.known.relation for about in abouts.values())).id
        stay = [files for files, about in abouts.items() if about.known.id != gone]
        known = without_lost_inverses(abouts[files].known for files in stay)
        relations = tuple(
            replace(files, about=store.objects.write_about(RelationFile(after, abouts[files].kept)))
            if after != abouts[files].known
            else files
            for files, after in zip(stay, known, strict=True)
        )
        places = {current.relations.index(files): place for place, files in enumerate(stay)}
        after = replace(
            current,
            stamp=replace(current.stamp, parent=current.stamp.number, time=now(), what=f"forgot {gone}"),
            relations=relations,
            kept=tuple(places[place] for place in current.kept if place in places),
            thresholds=current.thresholds and current.thresholds.only([one.id for one in known]),
        )
        return store.add(after if known else replace(after, n_tasks=0, shared="")).number


@contextmanager
def _changing(store: Store) -> Iterator[VersionFile]:
    """Yield the current version while no other process writes."""
    with store.writing():
        head = store.head()
        store.refuse_old(head)
        yield store.version_file(head.current)
