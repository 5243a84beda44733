"""The sections of a report on a folder of `erda paper`, in the order of the plan. `OUT/paper.json` names its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from erda.benchmark.paper.plan import ON, TABLES, PaperTable
from erda.benchmark.records import Records, read_json, write_json
from erda.benchmark.report.experiments import Found, Line, make_experiment, make_lines
from erda.benchmark.report.sections import Section
from erda.errors import RecordError

FILE = "paper.json"


def note_tables(out: Path, tables: Iterable[PaperTable]) -> None:
    """Add tables to those that were asked for in this folder before."""
    wanted = {*asked_tables(out), *(table.name for table in tables)}
    write_json(out / FILE, {"tables": [table.name for table in TABLES if table.name in wanted]})


def asked_tables(out: Path) -> tuple[str, ...]:
    """The tables that were asked for in this folder; none where it is no folder of `erda paper`."""
    if not (out / FILE).exists():
        return ()
    try:
        found = read_json(out / FILE).get("tables")
    except RecordError:
        found = None
    names = tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()
    # records are what counts: a list that says nothing hides none, and the next `erda paper` writes it anew
    return names or tuple(table_titles())


def table_titles() -> dict[str, str]:
    """Every table of the plan by its name: what a complete folder holds."""
    return {table.name: table.title for table in TABLES}


def planned_seeds(section: str) -> tuple[int, ...] | None:
    """The seeds of the table that a section shows, where the plan names them; None: all six of the order family."""
    for table in TABLES:
        if table.seeds and section.partition(ON)[0] == table.name:
            return table.seeds
    return None


def paper_sections(found: Records) -> tuple[tuple[Section, ...], frozenset[Path]]:
    """A section for each table asked for that has records, and the folders of all records that stand in one.

    A table that was run on other datasets as well has a section for each.
    """
    by_row: dict[Path, list[Found]] = {}  # folder of a row -> its records
    for record, path in zip(found.records, found.paths, strict=True):
        by_row.setdefault(path.parent.parent.parent, []).append((record, path.parent))
    sections: list[Section] = []
    used: set[Path] = set()
    names = asked_tables(found.directory)
    settings = sorted({row.parent.name for row in by_row if row.parent.parent == found.directory})
    for table in TABLES if names else ():
        for setting in settings if table.name in names else ():
            if setting == table.folder or setting.startswith(f"{table.folder}{ON}"):
                lines, notes = _lines(found.directory / setting, table, by_row)
                if lines:
                    used |= {place for line in lines for place in line.places if place is not None}
                    sections.append(_section(table, setting, lines, notes))
    return tuple(sections), frozenset(used)


def _section(table: PaperTable, setting: str, lines: Sequence[Line], notes: Sequence[str]) -> Section:
    labels = [line.label for line in lines]
    known = table.reference in labels or table.reference is None
    experiment = make_experiment(lines, notes=notes)
    planned = lines[0].records[0].dataset == table.dataset
    return Section(
        name=table.name + setting.removeprefix(table.folder),
        title=table.title if planned else f"{table.name}: {experiment.title}",
        text=table.text if planned else f'As "{table.title}", but on another dataset.',
        experiment=experiment,
        reference=table.reference if known else labels[-1],
        views=table.views,
        setting=table.setting,
    )


def _lines(folder: Path, table: PaperTable, by_row: dict[Path, list[Found]]) -> tuple[list[Line], list[str]]:
    """The rows of a table that have records, and notes on what is not among them."""
    rows = {
        row.label: [one for one in by_row.get(folder / row.variant, []) if one[0].method == row.method]
        for row in table.rows
    }
    lines, notes = make_lines({label: own for label, own in rows.items() if own})
    missing = [label for label, own in rows.items() if not own]
    if missing:
        notes.append(f"Not run yet: {', '.join(missing)}.")
    return lines, notes
