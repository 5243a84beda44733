"""The records behind every table, in `results/`: add records, and rebuild the documents that show them.

python benchmarks/results.py                             # rebuild the documents with tables of records
python benchmarks/results.py --check                     # audit every record; fail if a document is out of date
python benchmarks/results.py --add runs/paper            # first add the records of `erda paper` to results/paper/
python benchmarks/results.py --add runs/mine --to NAME   # or those of `erda run` to results/NAME.jsonl

A file has one sealed record a line. Its name stands for the folder of the runs: runs of `erda paper`, which lie in
SETTING/VARIANT/METHOD/SEED, go to results/paper/SETTING.jsonl. Added records replace those of the same place; they are
audited, and stored without long notes.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath

from documents import results_page, wrap_prose
from erda.benchmark.paper.paper_tables import TABLES, paper_layout
from erda.benchmark.records import Record, Records, read_records
from erda.benchmark.report.report_files import Section
from erda.errors import ErdaError, join_faults
from erda.files import write_bytes
from leaderboard.leaderboard import to_page_html, to_page_markdown
from leaderboard.rows import EARLIER, named_adapter, published_rows, ranked, record_rows
from opentext_tables import with_tables
from paper_rows import rows_page
from public_records import audit_record, compact_record, record_line

ROOT = Path(__file__).resolve().parents[1]
MADE_BY = "`python benchmarks/results.py`"
PAPER = "paper"
OPEN = "open"  # records of opentext.py, of another kind
OPEN_TEXT = ("docs/open-text.md", "docs/teaching.md")  # pages with tables of these records
PAGE = "build/site/leaderboard.html"  # part of the site, not of the repository
BEYOND = ("posterior", "posterior-mpnet", "peers")  # groups of tables that are not in the paper
PLANNED = {table.name for table in TABLES}
OWN = {table.name for table in TABLES if table.group in BEYOND}


def add_records(runs: Path, results: Path, to: str) -> int:
    """Add the records under `runs` to `results`; reject all if one is invalid. Return their number."""
    files: dict[Path, dict[str, Record]] = defaultdict(dict)
    found = read_records(runs)
    for record, folder in zip(found.records, found.folders, strict=True):
        place = PurePosixPath(folder.relative_to(found.directory))
        file = results / f"{to}.jsonl"
        if len(place.parts) > 3:
            file, place = results / to / f"{place.parts[0]}.jsonl", place.relative_to(place.parts[0])
        files[file][str(place)] = compact_record(record)
    faults = [*found.faults, *(fault for own in files.values() for fault in audit(own))]
    if faults:
        raise ErdaError(join_faults([f"{runs}: no record was added.", *faults]))
    for file, new in files.items():
        kept: dict[str, Record] = {}
        if file.exists():
            old = read_records(file)
            places = (str(folder.relative_to(old.directory)) for folder in old.folders)
            kept = dict(zip(places, old.records, strict=True))
        write_records(file, {**kept, **new})
    return sum(map(len, files.values()))


def write_records(file: Path, records: dict[str, Record]) -> None:
    """Write a file of records, sorted by place."""
    places = sorted(records, key=PurePosixPath)
    write_bytes(file, b"".join(record_line(records[place], place) for place in places))


def audit(records: dict[str, Record]) -> list[str]:
    """Faults of records, each with its place."""
    return [f"{place}: {fault}." for place, record in records.items() for fault in audit_record(record)]


def read_results(results: Path) -> dict[str, Records]:
    """Name of a file or folder in `results` -> its records."""
    parts: dict[str, list[Records]] = defaultdict(list)
    for file in sorted(set(results.rglob("*.jsonl")) - set(results.glob(f"{OPEN}/*"))):
        read = read_records(file)
        read = replace(read, records=tuple(map(named_adapter, read.records)))
        parts[file.relative_to(results).with_suffix("").parts[0]].append(read)
    return {
        name: Records(
            results / name,
            tuple(chain.from_iterable(one.records for one in own)),
            tuple(chain.from_iterable(one.folders for one in own)),
            tuple(chain.from_iterable(one.faults for one in own)),
        )
        for name, own in sorted(parts.items())
    }


def documents(found: dict[str, Records]) -> dict[str, str]:
    """Path in the repository -> content of every generated document."""
    sections = {name: [_in_file(section, name) for section in paper_layout(one)] for name, one in found.items()}
    every = [*chain.from_iterable(sections.values())]
    paper = [one for one in sections.get(PAPER, ()) if one.name in PLANNED - OWN]
    beyond = [one for one in every if one not in paper]
    rows = ranked([*record_rows(every), *published_rows()])
    return {
        "REPRODUCIBILITY.md": results_page(paper, title="Reproducibility", made_by=MADE_BY),
        "docs/beyond.md": results_page(beyond, title="Beyond the paper: the records", made_by=MADE_BY),
        **({"docs/paper-rows.md": wrap_prose(rows_page(paper, made_by=MADE_BY))} if paper else {}),
        "docs/leaderboard.md": to_page_markdown(rows),
        **{page: with_tables((ROOT / page).read_text(encoding="utf-8")) for page in OPEN_TEXT},
        PAGE: to_page_html(rows),
    }


def _in_file(section: Section, name: str) -> Section:
    """Section with the name of its file in its title; a table of the plan says if its adapter is an earlier one."""
    if section.name in PLANNED:
        adapter = section.experiment.records[0].settings["encoder"].get("adapter")
        is_earlier = adapter in EARLIER.values()
        return replace(section, title=f"{section.title} ({adapter}, an earlier one)") if is_earlier else section
    return replace(section, name=f"{name}-{section.name}", title=f"{section.title} (results/{name})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="DIR", help="folder of new records")
    parser.add_argument("--to", default=PAPER, metavar="NAME", help="name in results/ (default: paper)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail over a fault or an old document")
    options = parser.parse_args(arguments)
    results = ROOT / "results"
    try:
        for runs in options.add:
            print(f"added {add_records(runs, results, options.to)} records of {runs} to results/{options.to}")
        found = read_results(results)
        made = documents(found)
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    faults = [fault for one in found.values() for fault in one.faults]
    for part in found.values():
        faults += audit(dict(zip(map(str, part.folders), part.records, strict=True)))
    for name in [name for name, text in made.items() if not _is_current(ROOT / name, text)]:
        if options.check and name == PAGE:
            continue
        if options.check:
            faults.append(f"{name}: out of date; run {MADE_BY.strip('`')}")
        else:
            write_bytes(ROOT / name, made[name].encode())
            print(f"wrote {name}")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    every = [one for part in found.values() for one in part.records]
    print(f"results/: {len(every)} records, {sum(bool(one.packed) for one in every)} with predictions")
    return int(bool(faults))


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
