"""Sections -> what they show: tables and drawings, view by view. Reads predictions and vectors; writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from erda.benchmark.report import result_tables
from erda.benchmark.report.comparison import comparison_table, later_table, orders_table, published_table
from erda.benchmark.report.experiments import Line
from erda.benchmark.report.figures import (
    Drawing,
    confusion_table,
    count_confusion,
    draw_confusion,
    draw_cost,
    draw_curve,
    draw_forgetting,
    draw_sweep,
    draw_tsne,
)
from erda.benchmark.report.sections import Section
from erda.benchmark.report.tables import Table
from erda.errors import RecordError

Item = Table | Drawing


@dataclass(frozen=True, slots=True)
class Shown:
    """A section worked out: its tables and drawings in order, and what could not be shown and why."""

    section: Section
    items: tuple[Item, ...]
    notes: tuple[str, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Only the tables."""
        return tuple(item for item in self.items if isinstance(item, Table))

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """Only the drawings."""
        return tuple(item for item in self.items if isinstance(item, Drawing))


def show_section(section: Section, *, figures: bool = True) -> Shown:
    """Work out every view of a section; one that the records do not allow becomes a note, the others go on."""
    items: list[Item] = []
    notes: list[str] = []
    for view in section.views:
        if view in ONLY_DRAWN and not figures:
            continue
        try:
            items += [item for item in VIEW_ITEMS[view](section) if figures or isinstance(item, Table)]
        except RecordError as error:
            notes += str(error).splitlines()
    return Shown(section, tuple(items), tuple(dict.fromkeys(notes)))


def reference_line(section: Section) -> Line:
    """The line that the others are tested against, or the first."""
    named = (line for line in section.experiment.lines if line.label == section.reference)
    return next(named, section.experiment.lines[0])


# -- one function a view -----------------------------------------------------------------------------------------------


def _accuracy(section: Section) -> Iterator[Item]:
    for protocol in section.experiment.protocols:
        yield result_tables.accuracy_table(section.experiment, protocol)


def _published(section: Section) -> Iterator[Item]:
    found = (published_table(section.experiment), later_table(section.experiment))
    yield from (table for table in found if table is not None)


def _comparison(section: Section) -> Iterator[Item]:
    if section.reference is not None and len(section.experiment.lines) > 1:
        for protocol in section.experiment.protocols:
            yield comparison_table(section.experiment, section.reference, protocol)


def _confusion(section: Section) -> Iterator[Item]:
    confusion = count_confusion(reference_line(section))
    yield draw_confusion(confusion, section.experiment)
    if confusion.pairs:
        yield confusion_table(confusion, section.experiment)


def _cost(section: Section) -> Iterator[Item]:
    yield result_tables.cost_table(section.experiment)
    yield draw_cost(section.experiment)


def _runs(section: Section) -> Iterator[Item]:
    yield result_tables.runs_table(section.experiment)
    orders = orders_table(section.experiment)
    if orders is not None:
        yield orders


VIEW_ITEMS: dict[str, Callable[[Section], Iterator[Item]]] = {
    "accuracy": _accuracy,
    "final": lambda section: iter([result_tables.final_table(section.experiment)]),
    "published": _published,
    "comparison": _comparison,
    "curve": lambda section: iter([draw_curve(section.experiment)]),
    "sweep": lambda section: iter([draw_sweep(section.experiment, section.setting)]),
    "forgetting": lambda section: iter([draw_forgetting(section.experiment)]),
    "confusion": _confusion,
    "tsne": lambda section: iter([draw_tsne(section.experiment)]),
    "cost": _cost,
    "runs": _runs,
}
ONLY_DRAWN = ("curve", "sweep", "forgetting", "tsne")
