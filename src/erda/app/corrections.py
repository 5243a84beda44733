"""Corrections of what an extractor has learned: every one is a version that can be undone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from types import EllipsisType

from erda.app.answers import Progress, Tuned
from erda.app.inputs import Given, check_bool, known_relation, types_of
from erda.app.lesson_changes import declared, described, merged, renamed, taken_back
from erda.app.lessons import Declaration
from erda.app.state import Setup, State
from erda.app.store_edits import forget
from erda.app.tuning import Labelled, labelled_cells, tuned
from erda.app.version_log import VersionLog
from erda.errors import DataError
from erda.methods import find_method
from erda.types import Relation


class Corrections:
    """The part of an `Extractor` that corrects what was taught; `teach` adds to it."""

    _log: VersionLog

    def take_back(self, example: int | Given, *, progress: Progress | None = None) -> int:
        """Undo the teaching of one example, selected by its number or content; return the new version.

        Counterexamples and sentences without a relation are taken back in the same way. The extractor is then as if
        the example had never been taught.
        """
        return self.take_back_many([example], progress=progress)

    def take_back_many(self, examples: Iterable[int | Given], *, progress: Progress | None = None) -> int:
        """Take several examples back (`take_back`) in one version."""
        chosen = list(examples)
        with self._log.writing() as before:
            if not chosen:
                return before.stamp.number
            by_name, after, places = reads_names(before.stamp.setup), before, dict[str, None]()
            for one in chosen:
                rest = taken_back(after.known, after.unrelated, one, by_name=by_name)
                after = replace(after, known=rest.known, unrelated=rest.unrelated)
                places |= dict.fromkeys(rest.places)
            n = "an example" if len(chosen) == 1 else f"{len(chosen)} examples"
            return self._change(after, f"took back {n} of {', '.join(places)}", progress)

    def forget(self, relation: str) -> int:
        """Drop a relation and its examples, which earlier versions still hold; return the new version."""
        return self._log.edit(lambda store: forget(store, relation))

    def rename(self, relation: str, new_name: str | Relation, *, progress: Progress | None = None) -> int:
        """Rename a relation; its examples and description stay. Return the new version."""
        with self._log.writing() as before:
            old = known_relation(relation, self._log.current.relations)
            after = renamed(before.known, old, new_name)
            new = next(one.id for one, was in zip(after, before.known, strict=True) if was.relation is old)
            thresholds = before.thresholds and before.thresholds.renamed(old.id, new)
            state = replace(before, known=after, thresholds=thresholds)
            return self._change(state, f"renamed {old.id} to {new}", progress)

    def merge(self, relation: str, into: str, *, progress: Progress | None = None) -> int:
        """Move all examples and patterns of one relation into another, and drop the first; return the new version."""
        with self._log.writing() as before:
            source, target = (known_relation(one, self._log.current.relations) for one in (relation, into))
            after = merged(before.known, source.id, target.id)
            return self._change(replace(before, known=after), f"merged {source.id} into {target.id}", progress)

    def describe(self, relation: str, description: str, *, progress: Progress | None = None) -> int:
        """Replace the description of a relation, or remove it with an empty text; return the current version.

        Lines that mark both entities are patterns, as in `teach`: `"who began it\\n[[X]] was founded by {{Y}}."`.
        """
        with self._log.writing() as before:
            found = known_relation(relation, self._log.current.relations)
            after = described(before.known, found, description)
            if after == before.known:
                return before.stamp.number
            done = "described" if description.strip() else "removed the description of"
            return self._change(replace(before, known=after), f"{done} {found.id}", progress)

    def _change(self, after: State, what: str, progress: Progress | None = None) -> int:
        return self._log.learn(replace(after, stamp=replace(after.stamp, what=what)), progress).number

    def declare(
        self,
        relation: str,
        *,
        symmetric: bool | EllipsisType = ...,
        inverse: str | EllipsisType | None = ...,
        head_types: Iterable[str] | EllipsisType | None = ...,
        tail_types: Iterable[str] | EllipsisType | None = ...,
    ) -> int:
        """Declare what is always true of a relation; return the current version. None or an empty value clears.

        A symmetric relation holds in both directions (spouse). The inverse says the same the other way round (parent,
        child): the two relations name each other. `extract` reports such a pair once. `head_types` and `tail_types`
        replace the entity types that are learned from examples.
        """
        with self._log.writing() as before:
            relations = self._log.current.relations
            found = known_relation(relation, relations)
            old = next(one for one in before.known if one.relation is found)
            if not isinstance(inverse, str | EllipsisType | None):
                raise DataError(f"inverse: expected the name of a relation, got {inverse!r:.80}.")
            other = known_relation(inverse, relations).id if isinstance(inverse, str) and inverse.strip() else None
            if not isinstance(symmetric, EllipsisType):
                check_bool(symmetric, "symmetric")
            new = Declaration(
                old.symmetric if isinstance(symmetric, EllipsisType) else symmetric,
                old.inverse if inverse is ... else other,
                old.head_types if isinstance(head_types, EllipsisType) else types_of(head_types, "head_types"),
                old.tail_types if isinstance(tail_types, EllipsisType) else types_of(tail_types, "tail_types"),
            )
            after = declared(before.known, found.id, new)
            if after == before.known:
                return before.stamp.number
            return self._change(replace(before, known=after), f"declared {found.id}")

    def tune(
        self,
        labelled: Labelled,
        *,
        precision: float = 0.9,
        no_relation: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Tuned:
        """Fit confidence thresholds so that this share of the answers is right; store them in a new version.

        `labelled` is a file or a list of examples, as for `evaluate`: rows of `no_relation` and rows with
        `"holds": false` are the negatives. Annotated texts (`erda.app.annotated`) tune `extract` instead of `predict`.
        Later teaching keeps the thresholds. If no threshold reaches the precision, nothing changes, and
        `DataError` names the highest possible precision.
        """
        with self._log.writing() as before:
            cells = labelled_cells(self._log.current, labelled, no_relation=no_relation, progress=progress)
            thresholds, report = tuned(self._log.current, cells, precision)
            said = f"tuned for a precision of {precision:g}"
            return replace(report, version=self._change(replace(before, thresholds=thresholds), said))

    def clear_thresholds(self) -> int:
        """Drop the thresholds of `tune`; return the current version."""
        with self._log.writing() as before:
            if before.thresholds is None:
                return before.stamp.number
            return self._change(replace(before, thresholds=None), "dropped the thresholds")


def reads_names(setup: Setup) -> bool:
    """Whether the method can learn a relation from its name alone."""
    return find_method(setup.method).reads_names and bool(setup.settings.get("name_weight", True))
