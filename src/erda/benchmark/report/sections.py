"""Sections of a report: lines of one experiment and the views that show them.

A view is a group of tables and figures. A view that the records do not support becomes a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from erda.benchmark.experiments import Experiment, Line, group_records, has_default_settings
from erda.benchmark.records import Records
from erda.benchmark.report import result_tables as results
from erda.benchmark.report.figures.figure import Figure
from erda.benchmark.report.figures.measures import accuracy_figure, sweep_figure
from erda.benchmark.report.figures.tsne import tsne_figure
from erda.benchmark.report.table_formats import Table
from erda.errors import RecordError, unknown_name

Item = Table | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """One section. `reference` is the label of the line that the others are tested against."""

    name: str  # anchor on the page and folder of its files
    title: str
    text: str  # description in a sentence or two
    experiment: Experiment
    reference: str | None = None
    views: tuple[str, ...] = ()  # () is DEFAULT_VIEWS
    setting: str = ""  # setting on the horizontal axis of view "sweep"
    seeds: tuple[int, ...] = ()  # planned seeds; () is all of its order family

    @property
    def reference_line(self) -> Line:
        """The line that the others are tested against, by default the first."""
        named = (line for line in self.experiment.lines if line.label == self.reference)
        return next(named, self.experiment.lines[0])


@dataclass(frozen=True, slots=True)
class ShownSection:
    """Tables and figures of a section in order, and notes on views that could not be shown."""

    section: Section
    items: tuple[Item, ...]
    notes: tuple[str, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Tables without figures."""
        return tuple(item for item in self.items if isinstance(item, Table))


Layout = Callable[[Records], tuple[Section, ...]]
REFERENCES = ("posterior", "erda")  # preferred reference methods


def experiment_sections(found: Records) -> tuple[Section, ...]:
    """Default layout: one section per experiment."""
    return named_apart(map(experiment_section, group_records(found.found)))


def experiment_section(experiment: Experiment) -> Section:
    """Section of an experiment with the default views, Posterior or ERDA as the reference."""
    reference = min(experiment.lines, key=_rank).label if len(experiment.lines) > 1 else None
    return Section(experiment.slug, experiment.title, "", experiment, reference)


def _rank(line: Line) -> tuple[int, bool]:
    """Sort key of lines: the first line is the reference; default settings come first within a method."""
    if line.method not in REFERENCES:
        return len(REFERENCES), False
    return REFERENCES.index(line.method), not has_default_settings(line.first)


def named_apart(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Make section names unique by numbering repeated ones."""
    named: dict[str, Section] = {}
    for section in sections:
        names = chain([section.name], (f"{section.name}-{number}" for number in count(2)))
        name = next(name for name in names if name not in named)
        number = name.removeprefix(section.name).removeprefix("-")
        named[name] = replace(section, name=name, title=f"{section.title} ({number})") if number else section
    return tuple(named.values())


def with_reference(sections: Sequence[Section], name: str) -> tuple[Section, ...]:
    """Test the lines of each section against the line called `name`, a label or a method, where there is one."""
    chosen = {}
    for index, section in enumerate(sections):
        lines = section.experiment.lines
        own = [one for one in lines if one.label == name] or [one for one in lines if one.method == name]
        if own:
            chosen[index] = replace(section, reference=own[0].label)
    if not chosen:
        known = {line.label for section in sections for line in section.experiment.lines}
        raise RecordError(f"--reference: {unknown_name('line', name, known)}")
    return tuple(chosen.get(index, section) for index, section in enumerate(sections))


def show_section(section: Section, *, figures: bool = True) -> ShownSection:
    """Compute every view of a section."""
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


# -- views -------------------------------------------------------------------------------------------------------------


def _comparison(section: Section) -> Iterator[Item]:
    if section.reference is not None and len(section.experiment.lines) > 1:
        for protocol in section.experiment.protocols:
            yield results.comparison_table(section.experiment, section.reference, protocol)


# in page order; a view yields None for a table that does not apply to the records
VIEWS: dict[str, Callable[[Section], Iterable[Item | None]]] = {
    "accuracy": lambda one: [results.accuracy_table(one.experiment, name) for name in one.experiment.protocols],
    "final": lambda one: [results.final_table(one.experiment)],
    "published": lambda one: [results.published_table(one.experiment), results.later_table(one.experiment)],
    "comparison": _comparison,
    "curve": lambda one: [accuracy_figure(one.experiment)],
    "sweep": lambda one: [sweep_figure(one.experiment, one.setting)],
    "mistakes": lambda one: [results.mistakes_table(one.reference_line, one.experiment)],
    "tsne": lambda one: [tsne_figure(one.experiment)],
    "cost": lambda one: [results.cost_table(one.experiment)],
    "runs": lambda one: [results.runs_table(one.experiment), results.orders_table(one.experiment)],
}
DEFAULT_VIEWS = tuple(view for view in VIEWS if view not in ("sweep", "tsne"))
ONLY_FIGURES = ("curve", "sweep", "tsne")
