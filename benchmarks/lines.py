"""Lines of code per room, optionally beside those of another checkout.

python benchmarks/lines.py
python benchmarks/lines.py --before ../before
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def count_lines(root: Path) -> Counter[str]:
    """Count lines of Python per room: a folder or file of `src/erda`, or a folder beside `src`."""
    lines: Counter[str] = Counter()
    source = root / "src" / "erda"
    for path in source.rglob("*.py"):
        lines[f"src/erda/{path.relative_to(source).parts[0]}"] += len(path.read_bytes().splitlines())
    for folder in ("tests", "benchmarks"):
        lines[folder] = sum(len(path.read_bytes().splitlines()) for path in (root / folder).rglob("*.py"))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?", default=ROOT, metavar="DIR", help="a checkout (default: this)")
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of an earlier state")
    options = parser.parse_args(arguments)
    sides = [count_lines(folder) for folder in (options.before, options.root) if folder]
    for lines in sides:
        lines["src"] = sum(n for room, n in lines.items() if room.startswith("src/"))
    for room in sorted({room for lines in sides for room in lines}):
        print(f"{room:<28}", *(f"{lines[room]:>8,}" for lines in sides))
    return 0


if __name__ == "__main__":
    sys.exit(main())
