"""Report layout for the output of `erda paper`: its tables in the order of the plan, then all other records.

`OUT/paper.json` lists the requested tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.experiments import Line, group_records, make_experiment, make_lines
from erda.benchmark.paper.paper_tables import ON, TABLES, PaperTable
from erda.benchmark.records import FoundRecord, Records
from erda.benchmark.report.sections import Section, experiment_section, named_apart
from erda.errors import RecordError
from erda.files import read_json, write_json

FILE = "paper.json"


@dataclass(frozen=True, slots=True)
class AskedTables:
    """Content of `paper.json`."""

    tables: tuple[str, ...]


def note_tables(out: Path, tables: Iterable[PaperTable]) -> None:
    """Add tables to those requested for this folder."""
    wanted = {*asked_tables(out), *(table.name for table in tables)}
    write_json(out / FILE, AskedTables(tuple(table.name for table in TABLES if table.name in wanted)))


def asked_tables(out: Path) -> tuple[str, ...]:
    """Tables requested for this folder; none if `erda paper` did not write it."""
    if not (out / FILE).exists():
        return ()
    try:
        names = read_json(out / FILE, AskedTables, error=RecordError).tables
    except RecordError:
        names = ()
    # an unreadable or empty list hides no records; the next `erda paper` rewrites it
    return names or tuple(table_titles())


def table_titles() -> dict[str, str]:
    """Titles of all tables of the plan, by name."""
    return {table.name: table.title for table in TABLES}


def paper_layout(found: Records) -> tuple[Section, ...]:
    """One section per requested table and dataset with records, and one per experiment among the other records."""
    by_row: dict[Path, list[FoundRecord]] = {}  # folder of a row -> its records
    for one in found.found:
        if one.folder is not None:
            by_row.setdefault(one.folder.parents[1], []).append(one)
    sections: list[Section] = []
    names = asked_tables(found.directory)
    settings = sorted({row.parent.name for row in by_row if row.parent.parent == found.directory})
    for table in TABLES:
        for setting in settings if table.name in names else ():
            if setting == table.folder or setting.startswith(f"{table.folder}{ON}"):
                lines, notes = _lines(found.directory / setting, table, by_row)
                if lines:
                    sections.append(_section(table, setting, lines, notes))
    used = {one.folder for section in sections for line in section.experiment.lines for one in line.found}
    rest = group_records(one for one in found.found if one.folder not in used)
    return named_apart([*sections, *map(experiment_section, rest)])


def _section(table: PaperTable, setting: str, lines: Sequence[Line], notes: Sequence[str]) -> Section:
    labels = [line.label for line in lines]
    known = table.reference in labels or table.reference is None
    experiment = make_experiment(lines, notes=notes)
    planned = setting == table.folder
    return Section(
        name=table.name + setting.removeprefix(table.folder),
        title=table.title if planned else f"{table.name}: {experiment.title}",
        text=table.text if planned else f'As "{table.title}", but on another dataset.',
        experiment=experiment,
        reference=table.reference if known else labels[-1],
        views=table.views,
        setting=table.setting,
        seeds=table.seeds,
    )


def _lines(folder: Path, table: PaperTable, by_row: dict[Path, list[FoundRecord]]) -> tuple[list[Line], list[str]]:
    """Lines of a table that have records, and notes on the others."""
    rows = {
        row.label: [one for one in by_row.get(folder / row.variant, []) if one.record.method == row.method]
        for row in table.rows
    }
    lines, notes = make_lines({label: own for label, own in rows.items() if own})
    missing = [label for label, own in rows.items() if not own]
    if missing:
        notes.append(f"Not run yet: {', '.join(missing)}.")
    return lines, notes
