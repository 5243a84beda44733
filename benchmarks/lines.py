"""Size of the code beside its budget, `[tool.erda.budget]` of pyproject.toml.

python benchmarks/lines.py            # the budget, and lines per package
python benchmarks/lines.py --check    # the budget; exit status 1 if a figure exceeds it
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def count_lines(root: Path) -> Counter[str]:
    """Count lines of Python per package of `src/erda`, and per folder beside `src`."""
    lines: Counter[str] = Counter()
    source = root / "src" / "erda"
    for path in source.rglob("*.py"):
        lines[f"src/erda/{path.relative_to(source).parts[0]}"] += _length(path)
    for folder in ("tests", "tests/torture", "benchmarks", "research"):
        lines[folder] = sum(map(_length, (root / folder).rglob("*.py")))
    lines["tests"] -= lines["tests/torture"]
    return lines


def commands_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands; a group of commands is not one."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for command in dict.fromkeys(group.choices.values()):  # an alias is the same parser
            yield from commands_of(command)


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Flags of a command, without its positional arguments and --help."""
    own = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return [action.option_strings[-1] for action in own if action.option_strings]


def measure_sizes(root: Path) -> dict[str, int]:
    """Measure the figures that have a budget."""
    import erda
    from erda.cli.main import build_parser

    lines = count_lines(root)
    commands = list(commands_of(build_parser()))
    return {
        "source_lines": sum(n for place, n in lines.items() if place.startswith("src/")),
        "source_files": sum(1 for _ in (root / "src" / "erda").rglob("*.py")),
        "test_lines": lines["tests"],
        "commands": len(commands),
        "options": sum(len(options_of(command)) for command in commands),
        "public_names": sum(map(len, erda.PUBLIC.values())),
    }


def read_budget(root: Path) -> dict[str, int]:
    """Read the budget."""
    return tomllib.loads((root / "pyproject.toml").read_text())["tool"]["erda"]["budget"]


def budget_table(sizes: Mapping[str, int], budget: Mapping[str, int]) -> list[str]:
    """Lines of a table: figure, now, budget, and a remark where the figure exceeds it."""
    rows = [f"{'figure':<14}{'now':>8}{'budget':>8}"]
    for name, limit in budget.items():
        excess = sizes[name] - limit
        rows.append(f"{name.replace('_', ' '):<14}{sizes[name]:>8,}{limit:>8,}" + f"  {excess:,} over" * (excess > 0))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --check, fail above the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a figure exceeds its budget")
    options = parser.parse_args(arguments)
    sizes, budget = measure_sizes(ROOT), read_budget(ROOT)
    print("\n".join(budget_table(sizes, budget)))
    if not options.check:
        print(*(f"{place:<28}{n:>8,}" for place, n in sorted(count_lines(ROOT).items())), sep="\n")
        return 0
    exceeded = any(sizes[name] > limit for name, limit in budget.items())
    if exceeded:
        print("Above the budget of pyproject.toml: remove code; the numbers only ever fall.", file=sys.stderr)
    return int(exceeded)


def _length(path: Path) -> int:
    return len(path.read_bytes().splitlines())


if __name__ == "__main__":
    sys.exit(main())
