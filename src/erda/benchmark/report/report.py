"""Records -> a report: tables, figures and a standalone HTML page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from erda.benchmark.records import read_records
from erda.benchmark.report.figures.figure import FORMATS, save_figure
from erda.benchmark.report.page.page import PAGE, render_page
from erda.benchmark.report.sections import (
    Layout,
    Section,
    ShownSection,
    experiment_sections,
    show_section,
    with_reference,
)
from erda.benchmark.report.table_formats import WRITERS, Table, escape_markdown, one_line, to_markdown
from erda.files import remove_own, write_bytes

FOLDER = "report"
MARKDOWN = "report.md"  # of each section
# names of all files that a report may write; files with other names are never touched
_TABLES = "accuracy-[^/]+|final|published|later|comparison-[^/]+|mistakes|cost|runs|orders"
_FIGURES = "curve|sweep|tsne"
_WRITTEN = re.compile(
    rf"({_TABLES})\.({'|'.join(WRITERS)})|({_FIGURES})\.({'|'.join(FORMATS)})|{re.escape(MARKDOWN)}|{re.escape(PAGE)}"
)


@dataclass(frozen=True, slots=True)
class Report:
    """Files written, unreadable records, and views that could not be shown."""

    sections: tuple[Section, ...]
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    page: Path | None
    faults: tuple[str, ...]
    notes: tuple[str, ...]  # on views that the records do not support


def write_report(
    directory: Path, *, figures: bool = True, layout: Layout = experiment_sections, reference: str = ""
) -> Report:
    """Read every record under `directory` and write `directory/report`: tables, figures and `index.html`.

    `layout` chooses the sections, `reference` the line that others are tested against. A single section is written to
    the folder itself, several to one folder each. Files of an earlier report that this one does not write are removed.
    """
    found = read_records(directory)
    sections = with_reference(layout(found), reference) if reference else layout(found)
    faults = list(found.faults)
    if figures and find_spec("matplotlib") is None:
        faults.append("Figures were not drawn: matplotlib is not installed here.")
        figures = False
    folders = [""] if len(sections) == 1 else [section.name for section in sections]
    parts = [show_section(section, figures=figures) for section in sections]
    written = [
        path
        for part, folder in zip(parts, folders, strict=True)
        for path in _write_section(part, directory / FOLDER / folder)
    ]
    page = None
    if find_spec("jinja2") is None:
        faults.append(f"{PAGE} was not written: jinja2 is not installed here.")
    else:
        page = directory / FOLDER / PAGE
        html = render_page(
            parts, folders=folders, title=one_line(directory.resolve().name), faults=[*map(one_line, faults)]
        )
        write_bytes(page, html.encode())
        written.append(page)
    _remove_earlier(directory / FOLDER, set(written))
    notes = tuple(f"{part.section.title}: {note}" for part in parts for note in part.notes)
    tables = tuple(table for part in parts for table in part.tables)
    return Report(sections, tables, tuple(written), page, tuple(faults), notes)


def _remove_earlier(folder: Path, written: set[Path]) -> None:
    """Remove files of earlier reports, recognised by name, from the report and its section folders."""
    sections = [path.parent for path in folder.glob(f"*/{MARKDOWN}") if not path.parent.is_symlink()]
    for place in (*sections, folder):
        remove_own(
            place,
            partial(_is_earlier, {path.relative_to(place).as_posix() for path in written if place in path.parents}),
        )


def _is_earlier(written: set[str], name: str) -> bool:
    return name not in written and _WRITTEN.fullmatch(name) is not None


def _write_section(shown: ShownSection, folder: Path) -> list[Path]:
    written: list[Path] = []
    for item in shown.items:
        if isinstance(item, Table):
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
    blocks += [f"Not shown: {one_line(note)}" for note in shown.notes]
    for item in shown.items:
        if isinstance(item, Table):
            blocks.append(to_markdown(item))
        else:
            title = escape_markdown(item.title.removesuffix(f": {section.experiment.title}"))
            blocks.append(f"![{title}]({item.name}.png)\n\n{escape_markdown(item.caption)}")
    return "\n\n".join(blocks)
