"""The records behind every table, in `results/`: add records, and rebuild the documents that show them.

python benchmarks/results.py                            # rebuild REPRODUCIBILITY.md, docs/beyond.md and the leaderboard
python benchmarks/results.py --check                    # exit status 1 if a document differs from the records
python benchmarks/results.py --add runs/paper           # first add the records of `erda paper` to results/paper
python benchmarks/results.py --add runs/x --to fresh/x  # or those of `erda run`, to another folder

Added records are audited as `erda submit` does, and stored without predictions and long notes.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from erda.benchmark.audit import audit_record, compact_record, record_bytes
from erda.benchmark.paper.paper_sections import asked_tables, note_tables, paper_layout
from erda.benchmark.paper.paper_tables import TABLES
from erda.benchmark.records import RECORD, Records, read_records
from erda.benchmark.report.reproducibility import reproducibility_page
from erda.benchmark.report.sections import Section
from erda.errors import ErdaError, join_faults
from erda.files import write_bytes
from leaderboard.leaderboard import to_page_html, to_page_markdown
from leaderboard.rows import published_rows, ranked, record_rows

ROOT = Path(__file__).resolve().parents[1]
MADE_BY = "`python benchmarks/results.py`"
BEYOND = ("posterior", "posterior-mpnet", "peers")  # groups of tables that are not in the paper
LOST = "without_records.toml"
PAGE = "build/site/leaderboard.html"  # part of the site, not of the repository


def add_records(runs: Path, results: Path, to: str) -> int:
    """Add the records under `runs` to `results/to`; reject all if one is invalid. Return their number."""
    found = read_records(runs)
    compact = {one.folder.relative_to(runs): compact_record(one) for one in found.found if one.folder is not None}
    faults = list(found.faults)
    faults += [f"{place}: {fault}." for place, record in compact.items() for fault in audit_record(record)]
    if faults:
        raise ErdaError(join_faults([f"{runs}: no record was added.", *faults]))
    for place, record in compact.items():
        write_bytes(results / to / place / RECORD, record_bytes(record))
    names = asked_tables(runs)
    if names:
        note_tables(results / to, [table for table in TABLES if table.name in names])
    return len(compact)


def documents(results: Path) -> dict[str, str]:
    """Path in the repository -> content of every generated document."""
    lost = _without_records(results)
    folders = sorted({path.relative_to(results).parts[0] for path in results.rglob(RECORD)})
    found = {name: read_records(results / name) for name in folders}
    sections = {name: tuple(_in_folder(section, name) for section in paper_layout(one)) for name, one in found.items()}
    own = {table.name for table in TABLES if table.group in BEYOND}
    paper = [one for one in sections.get("paper", ()) if _table_name(one) not in own and one.name in _planned()]
    beyond = [one for name in folders for one in sections[name] if one not in paper]
    rows = ranked([*record_rows(section for name in folders for section in sections[name]), *published_rows()])
    every = Records(results, tuple(one for part in found.values() for one in part.found), _faults(found))
    titles = {table.name: table.title for table in TABLES}
    return {
        "REPRODUCIBILITY.md": reproducibility_page(
            every,
            paper,
            made_by=MADE_BY,
            expected={name: title for name, title in titles.items() if name not in own},
            lost=lost,
        ),
        "docs/beyond.md": reproducibility_page(
            every,
            beyond,
            title="Beyond the paper: the records",
            made_by=MADE_BY,
            expected={name: title for name, title in titles.items() if name in own},
            lost=lost,
        ),
        "docs/leaderboard.md": to_page_markdown(rows),
        PAGE: to_page_html(rows),
    }


def _in_folder(section: Section, folder: str) -> Section:
    """Section with the folder in its title, unless it is a table of the plan."""
    if section.name in _planned():
        return section
    return replace(section, name=f"{folder}-{section.name}", title=f"{section.title} (results/{folder})")


def _planned() -> set[str]:
    return {table.name for table in TABLES}


def _table_name(section: Section) -> str:
    return section.name.partition("-on-")[0]


def _faults(found: dict[str, Records]) -> tuple[str, ...]:
    return tuple(fault for one in found.values() for fault in one.faults)


def _without_records(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    path = results / LOST
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="DIR", help="folder of new records")
    parser.add_argument("--to", default="paper", metavar="NAME", help="folder in results/ (default: paper)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a document is out of date")
    options = parser.parse_args()
    results = ROOT / "results"
    try:
        for runs in options.add:
            print(f"added {add_records(runs, results, options.to)} records of {runs} to results/{options.to}")
        made = documents(results)
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    if options.check:
        del made[PAGE]
    stale = [name for name, text in made.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text]
    for name in stale:
        if options.check:
            print(f"{name}: out of date; run {MADE_BY.strip('`')}", file=sys.stderr)
        else:
            write_bytes(ROOT / name, made[name].encode())
            print(f"wrote {name}")
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    print(f"results/: {sum(1 for _ in results.rglob(RECORD))} records, {size / 1e6:.1f} MB")
    return int(bool(stale) and options.check)


if __name__ == "__main__":
    sys.exit(main())
