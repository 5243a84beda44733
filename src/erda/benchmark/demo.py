"""The demo: what `erda run --preset demo` does, and a report of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.report import FOLDER, write_report
from erda.benchmark.runner import run_all
from erda.benchmark.tables import Table
from erda.config import load_settings
from erda.errors import ErdaError, join_faults

SHOWN = ("accuracy", "final")  # the tables that a newcomer wants to see


@dataclass(frozen=True, slots=True)
class Demo:
    """What came out of the demo, and where it was written."""

    tables: tuple[Table, ...]
    curves: tuple[Path, ...]
    folder: Path
    faults: tuple[str, ...]


def run_demo(out: Path, *, seeds: str | None = None) -> Demo:
    """Run the preset `demo` into `out`, or read what is there already, and write the report."""
    finished = run_all(load_settings(preset="demo", flags={"seeds": seeds}), out=out)
    if not finished.records:
        raise ErdaError(join_faults(finished.faults))
    report = write_report(out)
    return Demo(
        tables=tuple(table for table in report.tables if table.name.startswith(SHOWN)),
        curves=tuple(path for path in report.files if path.suffix in (".png", ".svg")),
        folder=out / FOLDER,
        faults=(*finished.faults, *report.faults),
    )
