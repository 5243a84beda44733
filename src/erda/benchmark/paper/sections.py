"""The sections of a report on a folder of `erda paper`, in the order of the plan. `OUT/paper.json` names its tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from erda.benchmark.experiments import Found, Line, make_experiment, make_line
from erda.benchmark.paper.plan import TABLES, PaperTable, row_folder
from erda.benchmark.records import Records, read_json, write_json
from erda.benchmark.sections import Section
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
        names = read_json(out / FILE).get("tables", [])
    except RecordError:  # records are what counts; the next `erda paper` writes this file anew
        return tuple(table.name for table in TABLES)
    return tuple(name for name in names if isinstance(name, str))


def paper_sections(found: Records) -> tuple[tuple[Section, ...], frozenset[Path]]:
    """A section for each table asked for that has records, and the folders of all records that stand in one."""
    by_row: dict[Path, list[Found]] = {}  # folder of a row -> its records
    for record, path in zip(found.records, found.paths, strict=True):
        by_row.setdefault(path.parent.parent.parent, []).append((record, path.parent))
    sections: list[Section] = []
    used: set[Path] = set()
    names = asked_tables(found.directory)
    for table in TABLES:
        lines, notes = _lines(found.directory, table, by_row) if table.name in names else ([], [])
        if lines:
            used |= {place for line in lines for place in line.places if place is not None}
            labels = [line.label for line in lines]
            known = table.reference in labels or table.reference is None
            sections.append(
                Section(
                    name=table.name,
                    title=table.title,
                    text=table.text,
                    experiment=make_experiment(lines, notes=notes),
                    reference=table.reference if known else labels[-1],
                    views=table.views,
                    setting=table.setting,
                )
            )
    return tuple(sections), frozenset(used)


def _lines(out: Path, table: PaperTable, by_row: dict[Path, list[Found]]) -> tuple[list[Line], list[str]]:
    """The rows of a table that have records, and a note on those that have none."""
    lines, notes, missing = [], [], []
    for row in table.rows:
        own = [one for one in by_row.get(row_folder(out, table, row), []) if one[0].method == row.method]
        if own:
            line, said = make_line(row.label, own)
            lines.append(line)
            notes += said
        else:
            missing.append(row.label)
    if missing:
        notes.append(f"Not run yet: {', '.join(missing)}.")
    return lines, notes
