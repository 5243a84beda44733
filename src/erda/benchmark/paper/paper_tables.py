"""Tables and figures of the paper, and our own, as rows of runs (`paper_tables.toml`), and their report.

Tables share runs: ERDA in the main table is ERDA in the ablation, identified by the folder of its records,
`OUT/SETTING/VARIANT/METHOD/SEED`. `paper_plan.py` turns rows into runs.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from erda.benchmark.experiments import Line, group_records, make_experiment, make_lines, slug_of
from erda.benchmark.records import Record, Records
from erda.benchmark.report.report_files import Section, experiment_section, named_apart
from erda.errors import SettingsError, join_faults, unknown_name
from erda.settings.load import read_preset
from erda.settings.runs import Setting

FILE = Path(__file__).with_name("paper_tables.toml")
ON = "-on-"  # in names of folders and sections: a table on another dataset


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One row of a table: a method, its settings beyond the preset, and whether it needs a corpus."""

    label: str
    method: str
    variant: str = "plain"  # folder of its records, beside other choices of settings
    settings: Mapping[str, Setting] = field(default_factory=dict)
    corpus: bool = False  # learns with augmentation, so it needs --corpus


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table or figure. `group` is its name for `erda paper`; several tables may share a group."""

    name: str
    group: str
    title: str
    text: str
    preset: str
    rows: tuple[PaperRow, ...]
    settings: Mapping[str, Setting] = field(default_factory=dict)  # of every row
    seeds: tuple[int, ...] = ()  # () is all six
    reference: str | None = None
    views: tuple[str, ...] = ("accuracy", "final", "published", "comparison", "curve", "cost")
    setting: str = ""  # on the axis of view "sweep"

    @property
    def folder(self) -> str:
        """Folder of its records; tables with the same folder share runs."""
        cut = (f"{name}-{value}" for name, value in self.settings.items())
        return "-".join([self.preset, *cut]).replace("_", "-")

    @property
    def dataset(self) -> str:
        """Dataset of its preset."""
        return str(read_preset(self.preset)["dataset"])

    def folder_on(self, dataset: str | None) -> str:
        """Folder of its records on a dataset (None: the table's own)."""
        if dataset is None or dataset == self.dataset:
            return self.folder
        return f"{self.folder}{ON}{slug_of(Path(dataset).name) or 'own'}"


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}


_VALUE = tomllib.loads(FILE.read_text(encoding="utf-8"))
ROWS = {label: PaperRow(label, **_frozen(row)) for label, row in _VALUE["rows"].items()}
METHODS = ("SeqRun", "Joint training", "EMR", "EMAR", "IDLVQ-C", "ERDA w.o. DA", "ERDA")
TABLES: tuple[PaperTable, ...] = tuple(
    PaperTable(
        **{"group": table["name"], **_frozen(table), "rows": tuple(ROWS[one] for one in table.get("rows", METHODS))}
    )
    for table in _VALUE["tables"]
)


def choose_tables(names: Sequence[str]) -> tuple[PaperTable, ...]:
    """Choose tables by group or name, in the order of the plan; all if no name is given."""
    known = {name for table in TABLES for name in (table.group, table.name)}
    if faults := [unknown_name("table", name, known) for name in names if name not in known]:
        raise SettingsError(join_faults(faults))
    return tuple(table for table in TABLES if not names or table.group in names or table.name in names)


# -- the report --------------------------------------------------------------------------------------------------------


def paper_layout(found: Records) -> tuple[Section, ...]:
    """One section per table and dataset with records, and one per experiment among the other records.

    A table that shares its runs with others needs two rows with records.
    """
    by_row: dict[Path, list[Record]] = {}  # folder of a row -> its records
    for record, folder in zip(found.records, found.folders, strict=True):
        if not record.seen:
            by_row.setdefault(folder.parents[1], []).append(record)
    sharing = Counter(table.folder for table in TABLES)
    sections: list[Section] = []
    settings = sorted({row.parent.name for row in by_row if row.parent.parent == found.directory})
    for table in TABLES:
        for setting in settings:
            if setting == table.folder or setting.startswith(f"{table.folder}{ON}"):
                lines, notes = _lines(found.directory / setting, table, by_row)
                if len(lines) > 1 or (lines and sharing[table.folder] == 1):
                    sections.append(_section(table, setting, lines, notes))
    used = {id(record) for section in sections for record in section.experiment.records}
    rest = group_records(record for record in found.records if id(record) not in used)
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
    )


def _lines(folder: Path, table: PaperTable, by_row: dict[Path, list[Record]]) -> tuple[list[Line], list[str]]:
    """Lines of a table that have records, and notes on records left out."""
    rows = {
        row.label: [record for record in by_row.get(folder / row.variant, []) if record.method == row.method]
        for row in table.rows
    }
    return make_lines({label: own for label, own in rows.items() if own})
