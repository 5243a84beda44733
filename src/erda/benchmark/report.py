"""Records -> a report: tables, figures, and a page that opens from the disk. Nothing here trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from erda.benchmark.contents import sections_of
from erda.benchmark.experiments import Experiment
from erda.benchmark.figures import save_drawing
from erda.benchmark.page import PAGE, render_page
from erda.benchmark.records import read_records, write_whole
from erda.benchmark.sections import Section
from erda.benchmark.tables import WRITERS, Table, to_markdown
from erda.benchmark.views import Shown, show_section

FOLDER = "report"


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, what could not be read, and what could not be shown."""

    sections: tuple[Section, ...]
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    page: Path | None
    faults: tuple[str, ...]
    notes: tuple[str, ...]  # views that the records do not allow

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The experiment of each section."""
        return tuple(section.experiment for section in self.sections)


def write_report(directory: Path, *, figures: bool = True) -> Report:
    """Read every record under `directory` and write `directory/report`: tables, figures and `index.html`.

    The files of a single section lie in the folder itself, those of several in a folder each.
    """
    found = read_records(directory)
    sections = sections_of(found)
    faults = list(found.faults)
    if figures and find_spec("matplotlib") is None:
        faults.append("Figures were not drawn: matplotlib is not installed here.")
        figures = False
    written: list[Path] = []
    parts: list[Shown] = []
    for section in sections:
        shown = show_section(section, figures=figures)
        written += _write_section(shown, directory / FOLDER / section_folder(section, sections))
        parts.append(shown)
    page = None
    if find_spec("jinja2") is None:
        faults.append(f"{PAGE} was not written: jinja2 is not installed here.")
    else:
        page = directory / FOLDER / PAGE
        folders = [section_folder(section, sections) for section in sections]
        html = render_page(parts, folders=folders, title=directory.resolve().name, faults=faults)
        write_whole(page, html.encode())
        written.append(page)
    notes = tuple(f"{part.section.title}: {note}" for part in parts for note in part.notes)
    tables = tuple(table for part in parts for table in part.tables)
    return Report(sections, tables, tuple(written), page, tuple(faults), notes)


def section_folder(section: Section, sections: Sequence[Section]) -> str:
    """The folder of a section's files inside the report, "" for the report's own."""
    return "" if len(sections) == 1 else section.name


def _write_section(shown: Shown, folder: Path) -> list[Path]:
    written: list[Path] = []
    for table in shown.tables:
        for suffix, write in WRITERS.items():
            written.append(folder / f"{table.name}.{suffix}")
            write_whole(written[-1], write(table).encode())
    for drawing in shown.drawings:
        written += save_drawing(drawing, folder)
    written.append(folder / "report.md")
    write_whole(written[-1], _markdown_page(shown).encode())
    return written


def _markdown_page(shown: Shown) -> str:
    section = shown.section
    blocks = [f"# {section.title}", *([section.text] if section.text else [])]
    blocks += [f"Not shown: {note}" for note in shown.notes]
    for item in shown.items:
        title = item.title.removesuffix(f": {section.experiment.title}")
        blocks.append(
            to_markdown(item) if isinstance(item, Table) else f"![{title}]({item.name}.png)\n\n{item.caption}"
        )
    return "\n\n".join(blocks)
