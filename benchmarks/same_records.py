"""Compare the results of two folders of runs: print each difference with its path; exit status 1 if any differ.

python benchmarks/same_records.py runs/before runs/after

Records, with their predictions, are compared except for values that differ between any two runs: seconds, memory,
versions, and the folder of a corpus. A setting that one side lacks must have its default on the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from erda.encoders import encoder_settings
from erda.errors import ErdaError
from erda.fields import flat_values
from erda.files import read_json
from erda.settings.runs import filled_settings

LEFT_OUT = ("seconds", "peak_memory_mb", "versions", "seal", "predictions_sha256")
RECORD = "record.json"
NOTHING = object()  # a missing value


def differences(old: Path, new: Path) -> Iterator[str]:
    """Each difference as `path of a record: field: old, new`."""
    places = {side: {path.parent.relative_to(side) for path in side.rglob(RECORD)} for side in (old, new)}
    if not places[old]:
        raise ErdaError(f"{old}: holds no {RECORD}, so there is nothing to compare.")
    for place in sorted(places[old] ^ places[new]):
        yield f"{place}: only in {old if place in places[old] else new}"
    for place in sorted(places[old] & places[new]):
        then, now = (_record(side / place / RECORD) for side in (old, new))
        yield from (f"{place}/{RECORD}: {said}" for said in compare(then, now, defaults=_defaults(then)))


def _record(path: Path) -> dict[str, Any]:
    record = read_json(path, dict[str, Any])
    corpus = Path(record.get("corpus", "")).name
    return {name: one for name, one in {**record, "corpus": corpus}.items() if name not in LEFT_OUT}


def _defaults(record: dict[str, Any]) -> dict[str, Any]:
    """Defaults of all settings of a record's method and encoder."""
    return {**flat_values(encoder_settings(record["encoder"])()), **filled_settings(record["method"], {})}


def compare(old: Any, new: Any, *, defaults: dict[str, Any], where: str = "") -> Iterator[str]:
    """Differences between two plain values, as `field: old, new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            built_in = defaults.get(name, NOTHING) if ".settings" in f".{where}" else NOTHING
            there, here = old.get(name, built_in), new.get(name, built_in)
            yield from compare(there, here, defaults=defaults, where=f"{where}.{name}" if where else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, sides in enumerate(zip(old, new, strict=True)):
            yield from compare(*sides, defaults=defaults, where=f"{where}[{number}]")
    elif type(old) is not type(new) or old != new:
        yield f"{where}: {_shown(old)}, {_shown(new)}"


def _shown(value: Any) -> str:
    text = "not there" if value is NOTHING else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="a folder of runs")
    parser.add_argument("new", type=Path, metavar="NEW", help="another folder of the same runs")
    options = parser.parse_args(arguments)
    try:
        found = list(differences(options.old, options.new))
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    print(*found, sep="\n", end="\n" if found else "")
    n_records = sum(1 for _ in options.old.rglob(RECORD))
    print(f"{n_records} records compared: " + (f"{len(found)} differences" if found else "no difference"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
