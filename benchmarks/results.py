"""The records behind every table, in `results/`: add records, and rebuild the documents that show them.

python benchmarks/results.py                            # rebuild REPRODUCIBILITY.md, docs/beyond.md and the leaderboard
python benchmarks/results.py --check                    # exit status 1 if a document differs from the records
python benchmarks/results.py --add runs/paper           # first add the records of `erda paper` to results/paper
python benchmarks/results.py --add runs/x --to fresh/x  # or those of `erda run`, to another folder

Added records are audited, and stored without long notes.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from documents import results_page
from erda.benchmark.paper.paper_tables import TABLES, paper_layout
from erda.benchmark.records import RECORD, audit_record, compact_record, read_records, record_bytes
from erda.benchmark.report.report_files import Section
from erda.errors import ErdaError, join_faults
from erda.files import write_bytes
from leaderboard.leaderboard import to_page_html, to_page_markdown
from leaderboard.rows import published_rows, ranked, record_rows

ROOT = Path(__file__).resolve().parents[1]
MADE_BY = "`python benchmarks/results.py`"
BEYOND = ("posterior", "posterior-mpnet", "peers")  # groups of tables that are not in the paper


def add_records(runs: Path, results: Path, to: str) -> int:
    """Add the records under `runs` to `results/to`; reject all if one is invalid. Return their number."""
    found = read_records(runs)
    compact = {
        one.folder.relative_to(runs): compact_record(one.record) for one in found.found if one.folder is not None
    }
    faults = list(found.faults)
    faults += [f"{place}: {fault}." for place, record in compact.items() for fault in audit_record(record)]
    if faults:
        raise ErdaError(join_faults([f"{runs}: no record was added.", *faults]))
    for place, record in compact.items():
        write_bytes(results / to / place / RECORD, record_bytes(record))
    return len(compact)


def documents(results: Path) -> dict[str, str]:
    """Path in the repository -> content of every generated document."""
    folders = sorted({path.relative_to(results).parts[0] for path in results.rglob(RECORD)})
    found = {name: read_records(results / name) for name in folders}
    sections = {name: tuple(_in_folder(section, name) for section in paper_layout(one)) for name, one in found.items()}
    own = {table.name for table in TABLES if table.group in BEYOND}
    paper = [one for one in sections.get("paper", ()) if _table_name(one) not in own and one.name in _planned()]
    beyond = [one for name in folders for one in sections[name] if one not in paper]
    rows = ranked([*record_rows(section for name in folders for section in sections[name]), *published_rows()])
    return {
        "REPRODUCIBILITY.md": results_page(paper, title="Reproducibility", made_by=MADE_BY),
        "docs/beyond.md": results_page(beyond, title="Beyond the paper: the records", made_by=MADE_BY),
        "docs/leaderboard.md": to_page_markdown(rows),
        "docs/leaderboard.html": to_page_html(rows),
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
