"""Table of several lines on the same streams, with intervals over relations: python research/fresh.py runs/fresh ...

Each folder holds records of `erda run`; the lines of the second and later folders carry its name. All lines are
compared with the reference. The streams share their questions, so there are no tests over streams: an interval is a
bootstrap over relations, and every relation brings its questions of all streams.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from erda.benchmark.experiments import PERCENT
from erda.benchmark.measures import PROTOCOLS
from erda.benchmark.records import Record, read_records
from erda.benchmark.statistics import relation_interval
from erda.errors import ErdaError, RecordError


@dataclass(frozen=True, slots=True)
class Totals:
    """Right predictions and questions of each relation after the last task, summed over streams."""

    right: Mapping[str, int]
    tests: Mapping[str, int]

    @classmethod
    def of(cls, records: Iterable[Record], protocol: str) -> Totals:
        """Sum the counts of several records."""
        right: dict[str, int] = {}
        tests: dict[str, int] = {}
        for record in records:
            for relation, counts in record.relation_right[protocol].items():
                right[relation] = right.get(relation, 0) + counts[-1]
                tests[relation] = tests.get(relation, 0) + record.relation_tests[relation]
        return cls(right, tests)

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return sum(self.right.values()) / sum(self.tests.values())


def table(lines: Mapping[str, Sequence[Record]], reference: str, protocol: str) -> list[str]:
    """Return rows of Markdown, best line first; streams that the reference lacks are left out."""
    ours = {record.seed: record for record in lines[reference]}
    rows = []
    for label, records in lines.items():
        shared = [record for record in records if record.seed in ours]
        for record in shared:
            if record.digest != ours[record.seed].digest:
                raise RecordError(f"'{label}' and '{reference}' were run on different streams (seed {record.seed}).")
        if not shared:
            continue
        theirs, best = Totals.of(shared, protocol), Totals.of([ours[record.seed] for record in shared], protocol)
        names = list(theirs.right)
        tests = [theirs.tests[name] for name in names]
        own = _interval([theirs.right[name] for name in names], tests)
        lead = _interval([best.right[name] - theirs.right[name] for name in names], tests)
        difference = PERCENT * (best.accuracy - theirs.accuracy)
        shown = "reference" if label == reference else f"{difference:+.2f} ({lead})"
        rows.append(
            (theirs.accuracy, f"| {label} | {len(shared)} | {PERCENT * theirs.accuracy:.2f} | {own} | {shown} |")
        )
    head = f"| method, {protocol} | streams | accuracy | 95 % interval | lead of {reference} |"
    return [head, "|---|---:|---:|---:|---:|", *(row for _, row in sorted(rows, reverse=True))]


def _interval(right: Sequence[int], tests: Sequence[int]) -> str:
    found = relation_interval(right, tests)
    return "–" if found is None else f"{PERCENT * found[0]:.1f} to {PERCENT * found[1]:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of both protocols."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="DIR", help="--out folders of `erda run`, or files of results/"
    )
    parser.add_argument("--reference", default="posterior", metavar="LINE", help="line to compare with")
    options = parser.parse_args(arguments)
    try:
        lines: dict[str, list[Record]] = {}
        for number, folder in enumerate(options.folders):
            for record in read_records(folder).records:
                label = f"{record.method}, {folder.stem}" if number else record.method
                lines.setdefault(label, []).append(record)
        if options.reference not in lines:
            raise RecordError(f"No records of '{options.reference}' in {options.folders[0]}.")
        measured = [record.relation_right for records in lines.values() for record in records]
        for protocol in [name for name in PROTOCOLS if all(name in one for one in measured)]:
            print(*table(lines, options.reference, protocol), "", sep="\n")
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
