"""Shown sections -> HTML. The template only lays out; what it prints is worked out here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from erda import __version__
from erda.benchmark.metrics import ALL_SEEN, CANDIDATES
from erda.benchmark.report.figures.base import FORMATS, Figure, page_panels
from erda.benchmark.report.layout import Item, Section, ShownSection
from erda.benchmark.report.page.headline import make_headline
from erda.benchmark.report.tables import WRITERS, Cell, Table, format_cell
from erda.benchmark.statistics import Summary

PAGE = "index.html"
HERE = Path(__file__).parent
FOLDED = ("runs", "orders")  # long tables that are opened by a click
DENSE = 8  # columns; in a wider table deviations stand below their means
MOST_DETAILED = 3  # sections whose tables and figures are listed in the contents
NAMES = {"md": "Markdown", "csv": "CSV", "tex": "LaTeX", "png": "PNG", "svg": "SVG"}


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A cell as the page shows it; `deviation` stands smaller behind or below."""

    text: str
    deviation: str = ""
    value: float | None = None  # to sort by, where the text is not enough


@dataclass(frozen=True, slots=True)
class Link:
    """A file of a table or figure."""

    name: str  # of its format
    address: str


@dataclass(frozen=True, slots=True)
class Block:
    """A table or a figure on the page."""

    anchor: str
    title: str
    notes: tuple[str, ...]
    links: tuple[Link, ...]
    table: Table | None = None
    rows: tuple[tuple[ShownCell, ...], ...] = ()
    panels: tuple[str, ...] = ()  # HTML
    alt: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A section on the page."""

    anchor: str
    title: str
    subtitle: str  # what the experiment is, where the title does not say it
    text: str
    reference: str
    notes: tuple[str, ...]  # about the records
    missing: tuple[str, ...]  # what could not be shown
    blocks: tuple[Block, ...]


def render_page(shown: Sequence[ShownSection], *, folders: Sequence[str], title: str, faults: Sequence[str]) -> str:
    """The whole page; `folders` are those of the sections' files, relative to the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    parts = [_part(one, folder) for one, folder in zip(shown, folders, strict=True)]
    records = {id(record): record for one in shown for record in one.section.experiment.records}.values()
    versions = sorted({f"{name} {version}" for record in records for name, version in record.versions.items()})
    return environment.get_template("page.html.j2").render(
        title=title,
        headline=make_headline(shown[0].section),
        subtitle=_subtitle(shown[0].section),
        parts=parts,
        faults=faults,
        is_detailed=len(parts) <= MOST_DETAILED,
        n_records=len(records),
        devices=sorted({record.device for record in records}),
        versions=versions,
        version=__version__,
        all_seen=ALL_SEEN,
        candidates=CANDIDATES,
        markup=Markup,
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "tables.js").read_text(encoding="utf-8")),
        dense=DENSE,
    )


def _part(shown: ShownSection, folder: str) -> Part:
    section = shown.section
    return Part(
        anchor=section.name,
        title=section.title,
        subtitle=_subtitle(section),
        text=section.text,
        reference=section.reference or "",
        notes=section.experiment.notes,
        missing=shown.notes,
        blocks=tuple(_block(item, shown, folder) for item in shown.items),
    )


def _subtitle(section: Section) -> str:
    return "" if section.experiment.title in section.title else section.experiment.title


def _block(item: Item, shown: ShownSection, folder: str) -> Block:
    experiment = shown.section.experiment
    title = item.title.removesuffix(f": {experiment.title}")
    ends = FORMATS if isinstance(item, Figure) else tuple(WRITERS)
    start = f"{quote(folder)}/" if folder else ""
    links = tuple(Link(NAMES[end], f"{start}{quote(item.name)}.{end}") for end in ends)
    if isinstance(item, Figure):
        anchor = f"{shown.section.name}-{item.name}-figure"
        panels = tuple(page_panels(item, anchor))
        return Block(anchor, title, (item.caption,), links, panels=panels, alt=item.alt)
    return Block(
        anchor=f"{shown.section.name}-{item.name}",
        title=title,
        notes=tuple(note for note in item.notes if note not in experiment.notes),  # those stand above
        links=links,
        table=item,
        rows=tuple(tuple(_cell(cell, item.decimals) for cell in row) for row in item.rows),
        folded=item.name in FOLDED,
    )


def _cell(cell: Cell, decimals: int) -> ShownCell:
    if isinstance(cell, Summary):
        deviation = "" if cell.deviation is None else f"{cell.deviation:.{decimals}f}"
        return ShownCell(f"{cell.mean:.{decimals}f}", deviation, cell.mean)
    return ShownCell(format_cell(cell, decimals))
