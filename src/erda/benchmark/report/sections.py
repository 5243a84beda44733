"""What a report is made of: sections, each some lines of one experiment and the views in which they are shown.

A view is some tables and figures. One that the records do not allow becomes a note, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count

from erda.benchmark.experiments import Experiment, Line, group_records, has_default_settings
from erda.benchmark.records import Records
from erda.benchmark.report import result_tables as results
from erda.benchmark.report.figures.confusion import confusion_figure, confusion_table, count_confusion
from erda.benchmark.report.figures.figure import Figure
from erda.benchmark.report.figures.measures import accuracy_figure, cost_figure, forgetting_figure, sweep_figure
from erda.benchmark.report.figures.tsne import tsne_figure
from erda.benchmark.report.table_formats import Table
from erda.errors import RecordError

Item = Table | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. `reference` is the label of the line that the others are tested against."""

    name: str  # anchor on the page and folder of its files
    title: str
    text: str  # what is shown, in a sentence or two
    experiment: Experiment
    reference: str | None = None
    views: tuple[str, ...] = ()  # () is DEFAULT_VIEWS
    setting: str = ""  # the setting along the horizontal axis of view "sweep"
    seeds: tuple[int, ...] = ()  # those it should have; () is all of its order family

    @property
    def reference_line(self) -> Line:
        """The line that the others are tested against, or the first."""
        named = (line for line in self.experiment.lines if line.label == self.reference)
        return next(named, self.experiment.lines[0])


@dataclass(frozen=True, slots=True)
class ShownSection:
    """A section worked out: its tables and figures in order, and what could not be shown and why."""

    section: Section
    items: tuple[Item, ...]
    notes: tuple[str, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Only the tables."""
        return tuple(item for item in self.items if isinstance(item, Table))


Layout = Callable[[Records], tuple[Section, ...]]
REFERENCES = ("posterior", "erda")  # the methods that others are compared with, where they are there


def experiment_sections(found: Records) -> tuple[Section, ...]:
    """A section for each experiment: the layout of a folder of which nothing else is known."""
    return named_apart(map(experiment_section, group_records(found.found)))


def experiment_section(experiment: Experiment) -> Section:
    """An experiment as it is shown where nobody said how: everything, and the others against our method or ERDA."""
    reference = min(experiment.lines, key=_rank).label if len(experiment.lines) > 1 else None
    return Section(experiment.slug, experiment.title, "", experiment, reference)


def _rank(line: Line) -> tuple[int, bool]:
    """Sort key whose least line is the reference; of one method's lines that with its default settings."""
    if line.method not in REFERENCES:
        return len(REFERENCES), False
    return REFERENCES.index(line.method), not has_default_settings(line.first)


def named_apart(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Sections under names of their own: of those with the same name (files called alike) the later are numbered."""
    named: dict[str, Section] = {}
    for section in sections:
        names = chain([section.name], (f"{section.name}-{number}" for number in count(2)))
        name = next(name for name in names if name not in named)
        number = name.removeprefix(section.name).removeprefix("-")
        named[name] = replace(section, name=name, title=f"{section.title} ({number})") if number else section
    return tuple(named.values())


def show_section(section: Section, *, figures: bool = True) -> ShownSection:
    """Work out every view of a section."""
    items: list[Item] = []
    notes: list[str] = []
    for view in section.views or DEFAULT_VIEWS:
        if view in ONLY_FIGURES and not figures:
            continue
        try:
            items += [item for item in VIEWS[view](section) if item and (figures or isinstance(item, Table))]
        except RecordError as error:
            notes += str(error).splitlines()
    return ShownSection(section, tuple(items), tuple(dict.fromkeys(notes)))


# -- one function a view -----------------------------------------------------------------------------------------------


def _comparison(section: Section) -> Iterator[Item]:
    if section.reference is not None and len(section.experiment.lines) > 1:
        for protocol in section.experiment.protocols:
            yield results.comparison_table(section.experiment, section.reference, protocol)


def _confusion(section: Section) -> Iterator[Item]:
    confusion = count_confusion(section.reference_line)
    yield confusion_figure(confusion, section.experiment)
    if confusion.mistakes:
        yield confusion_table(confusion, section.experiment)


# in the order in which they stand on the page; None for a table that these records do not have
VIEWS: dict[str, Callable[[Section], Iterable[Item | None]]] = {
    "accuracy": lambda one: [results.accuracy_table(one.experiment, name) for name in one.experiment.protocols],
    "final": lambda one: [results.final_table(one.experiment)],
    "published": lambda one: [results.published_table(one.experiment), results.later_table(one.experiment)],
    "comparison": _comparison,
    "curve": lambda one: [accuracy_figure(one.experiment)],
    "sweep": lambda one: [sweep_figure(one.experiment, one.setting)],
    "forgetting": lambda one: [forgetting_figure(one.experiment)],
    "confusion": _confusion,
    "tsne": lambda one: [tsne_figure(one.experiment)],
    "cost": lambda one: [results.cost_table(one.experiment), cost_figure(one.experiment)],
    "runs": lambda one: [results.runs_table(one.experiment), results.orders_table(one.experiment)],
}
DEFAULT_VIEWS = tuple(view for view in VIEWS if view not in ("sweep", "tsne"))
ONLY_FIGURES = ("curve", "sweep", "forgetting", "tsne")
