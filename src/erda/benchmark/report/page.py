"""Sections -> one HTML page, rendered from `page.html.j2`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from erda import __version__
from erda.benchmark.experiments import Line
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.report.figures import FORMATS, Figure, page_panels
from erda.benchmark.report.published import find_published
from erda.benchmark.report.report_files import Item, Section, ShownSection
from erda.benchmark.report.table_formats import WRITERS, format_cell

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent
FOLDED = ("runs",)  # long tables, collapsed
DENSE = 8  # columns; wider tables show deviations below their means
MOST_DETAILED = 3  # pages with more sections list no tables and figures in the contents
NAMES = {"md": "Markdown", "csv": "CSV", "png": "PNG", "svg": "SVG"}


@dataclass(frozen=True, slots=True)
class Block:
    """A table or a figure on the page."""

    item: Item
    anchor: str
    title: str
    notes: tuple[str, ...]
    links: dict[str, str]  # format -> URL of the file
    panels: tuple[str, ...] = ()  # of a figure, as data URLs


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2")


def render_page(shown: Sequence[ShownSection], *, folders: Sequence[str], title: str, faults: Sequence[str]) -> str:
    """Render the page; `folders` hold the sections' files, relative to the page."""
    from markupsafe import Markup

    first = shown[0].section
    published = {line.label: find_published(line.first) for line in first.experiment.lines}
    records = {id(record): record for one in shown for record in one.section.experiment.records}.values()
    return _template().render(
        title=title,
        first=first,
        published=published,
        has_paper=any(published.values()),
        parts=[
            (one, [_block(item, one.section, folder) for item in one.items])
            for one, folder in zip(shown, folders, strict=True)
        ],
        faults=faults,
        is_detailed=len(shown) <= MOST_DETAILED,
        n_records=len(records),
        devices=sorted({record.device for record in records}),
        versions=sorted({f"{name} {version}" for record in records for name, version in record.versions.items()}),
        version=__version__,
        all_seen=ALL_SEEN,
        candidates=CANDIDATES,
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "tables.js").read_text(encoding="utf-8")),
        dense=DENSE,
        folded=FOLDED,
        format_cell=format_cell,
        best_of=_best,
    )


def _best(section: Section) -> Line:
    """Line with the highest accuracy after the last task by all-seen."""
    found = {line.label: line.accuracy(ALL_SEEN, -1) for line in section.experiment.lines}
    return max(section.experiment.lines, key=lambda line: one.mean if (one := found[line.label]) else 0.0)


def _block(item: Item, section: Section, folder: str) -> Block:
    anchor = f"{section.name}-{item.name}"
    title = item.title.removesuffix(f": {section.experiment.title}")
    start = f"{quote(folder)}/" if folder else ""
    links = {
        NAMES[end]: f"{start}{quote(item.name)}.{end}" for end in (FORMATS if isinstance(item, Figure) else WRITERS)
    }
    if isinstance(item, Figure):
        anchor = f"{anchor}-figure"
        return Block(item, anchor, title, (item.caption,), links, tuple(page_panels(item)))
    notes = tuple(note for note in item.notes if note not in section.experiment.notes)  # shown above
    return Block(item, anchor, title, notes, links)
