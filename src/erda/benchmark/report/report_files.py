"""Records -> a report: sections with tables and figures, and a standalone HTML page.

A section shows lines of one experiment. A view is a group of its tables and figures; a view that the records do not
support becomes a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from erda.benchmark.experiments import Experiment, Line, group_records
from erda.benchmark.records import Records, read_records
from erda.benchmark.report import result_tables as results
from erda.benchmark.report.figures import FORMATS, Figure, accuracy_figure, save_figure, sweep_figure
from erda.benchmark.report.table_formats import WRITERS, ResultTable, escape_markdown, single_line, to_markdown
from erda.errors import RecordError, unknown_name
from erda.files import remove_own, write_bytes
from erda.settings.runs import filled_settings

FOLDER = "report"
PAGE, MARKDOWN = "index.html", "report.md"  # MARKDOWN: of each section
# names of all files that a report may write; files with other names are never touched
_TABLES = "accuracy-[^/]+|final|published|comparison-[^/]+|cost|runs"
_FIGURES = "curve|sweep"
_WRITTEN = re.compile(
    rf"({_TABLES})\.({'|'.join(WRITERS)})|({_FIGURES})\.({'|'.join(FORMATS)})|{re.escape(MARKDOWN)}|{re.escape(PAGE)}"
)
Item = ResultTable | Figure


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


Layout = Callable[[Records], tuple[Section, ...]]
REFERENCES = ("posterior", "erda")  # preferred reference methods


def experiment_sections(found: Records) -> tuple[Section, ...]:
    """Default layout: one section per experiment."""
    return named_apart(map(experiment_section, group_records(found.records)))


def experiment_section(experiment: Experiment) -> Section:
    """Section of an experiment with the default views, Posterior or ERDA as the reference."""
    reference = min(experiment.lines, key=_rank).label if len(experiment.lines) > 1 else None
    return Section(experiment.slug, experiment.title, "", experiment, reference)


def _rank(line: Line) -> tuple[int, bool]:
    """Sort key of lines: the first line is the reference; default settings come first within a method."""
    if line.method not in REFERENCES:
        return len(REFERENCES), False
    given, default = (filled_settings(line.method, own) for own in (line.first.settings["method"], {}))
    return REFERENCES.index(line.method), given != default


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
        if own := [one for one in lines if one.label == name] or [one for one in lines if one.method == name]:
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
            items += [item for item in VIEWS[view](section) if item and (figures or isinstance(item, ResultTable))]
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
    "published": lambda one: [results.published_table(one.experiment)],
    "comparison": _comparison,
    "curve": lambda one: [accuracy_figure(one.experiment)],
    "sweep": lambda one: [sweep_figure(one.experiment, one.setting)],
    "cost": lambda one: [results.cost_table(one.experiment)],
    "runs": lambda one: [results.runs_table(one.experiment)],
}
DEFAULT_VIEWS = tuple(view for view in VIEWS if view != "sweep")
ONLY_FIGURES = ("curve", "sweep")


# -- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """Files written, unreadable records, and views that could not be shown."""

    sections: tuple[Section, ...]
    tables: tuple[ResultTable, ...]
    files: tuple[Path, ...]
    page: Path
    faults: tuple[str, ...]
    notes: tuple[str, ...]  # on views that the records do not support


def write_report(
    directory: Path, *, figures: bool = True, layout: Layout = experiment_sections, reference: str = ""
) -> Report:
    """Read every record under `directory` and write `directory/report`: tables, figures and `index.html`.

    `layout` chooses the sections, `reference` the line that others are tested against. A single section is written to
    the folder itself, several to one folder each. Files of an earlier report that this one does not write are removed.
    """
    from erda.benchmark.report.page import render_page

    found = read_records(directory)
    sections = with_reference(layout(found), reference) if reference else layout(found)
    folders = [""] if len(sections) == 1 else [section.name for section in sections]
    parts = [show_section(section, figures=figures) for section in sections]
    written = [
        path
        for part, folder in zip(parts, folders, strict=True)
        for path in _write_section(part, directory / FOLDER / folder)
    ]
    page = directory / FOLDER / PAGE
    shown_faults = [*map(single_line, found.faults)]
    html = render_page(parts, folders=folders, title=single_line(directory.resolve().name), faults=shown_faults)
    write_bytes(page, html.encode())
    written.append(page)
    _remove_earlier(directory / FOLDER, set(written))
    notes = tuple(f"{part.section.title}: {note}" for part in parts for note in part.notes)
    tables = tuple(item for part in parts for item in part.items if isinstance(item, ResultTable))
    return Report(sections, tables, tuple(written), page, found.faults, notes)


def _remove_earlier(folder: Path, written: set[Path]) -> None:
    """Remove files of earlier reports, recognised by name, from the report and its section folders."""
    sections = [path.parent for path in folder.glob(f"*/{MARKDOWN}") if not path.parent.is_symlink()]
    for place in (*sections, folder):
        earlier = {path.name for path in place.iterdir() if _WRITTEN.fullmatch(path.name)}
        earlier -= {path.name for path in written if path.parent == place}
        remove_own(place, earlier.__contains__)


def _write_section(shown: ShownSection, folder: Path) -> list[Path]:
    written: list[Path] = []
    for item in shown.items:
        if isinstance(item, ResultTable):
            for suffix, write in WRITERS.items():
                written.append(folder / f"{item.name}.{suffix}")
                write_bytes(written[-1], write(item).encode())
        else:
            written += save_figure(item, folder)
    written.append(folder / MARKDOWN)
    write_bytes(written[-1], _markdown_page(shown).encode())
    return written


def _markdown_page(shown: ShownSection) -> str:
    section = shown.section
    blocks = [f"# {escape_markdown(section.title)}", *([section.text] if section.text else [])]
    blocks += [f"Not shown: {single_line(note)}" for note in shown.notes]
    for item in shown.items:
        if isinstance(item, ResultTable):
            blocks.append(to_markdown(item))
        else:
            title = escape_markdown(item.title.removesuffix(f": {section.experiment.title}"))
            blocks.append(f"![{title}]({item.name}.png)\n\n{escape_markdown(item.caption)}")
    return "\n\n".join(blocks)
