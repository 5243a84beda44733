"""`erda bench corpus`: time and memory of a corpus."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erda.benchmark.corpus_bench import CorpusCost, QueryCost

ABOUT = (
    "Measure a corpus: building it, finding the sentences of all entity pairs of a 10-way 5-shot task, mining pairs; "
    "seconds and peak memory, each in a process of its own."
)
EXAMPLES = """examples:
  erda bench corpus corpora/mine
  erda bench corpus corpora/new --sources wiki-large-*.jsonl.gz --queries fewrel/cfrl/5-shot/train_0.txt
  erda bench corpus --sources wiki-large-*.jsonl.gz --sizes 10000 100000 1000000
"""


def register_bench(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `corpus` to the group `bench`."""
    parser = subparsers.add_parser(
        "corpus",
        help="time and memory of building, querying and mining a corpus",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, nargs="?", help="a corpus, or where to build one")
    parser.add_argument("--sources", metavar="FILE", type=Path, nargs="+", default=[], help="build DIR of these first")
    parser.add_argument(
        "--sizes", metavar="N", type=int, nargs="+", help="instead: corpora of the first N rows of the JSONL sources"
    )
    parser.add_argument("--queries", metavar="FILE", type=Path, help="entity pairs to look for: JSONL or a CFRL split")
    parser.add_argument("--repeats", metavar="N", type=int, default=20, help="queries of 50 pairs (default: 20)")
    parser.set_defaults(handler=bench)


def bench(options: argparse.Namespace) -> int:
    """Measure and print."""
    from erda.benchmark.corpus_bench import bench_corpus, growth
    from erda.errors import SettingsError

    if options.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            costs = growth(
                options.sources, options.sizes, Path(scratch), queries=options.queries, repeats=options.repeats
            )
    elif options.directory:
        costs = [
            bench_corpus(options.directory, sources=options.sources, queries=options.queries, repeats=options.repeats)
        ]
    else:
        raise SettingsError("name the folder of a corpus, or give --sources and --sizes.")
    _print_costs(costs)
    return 0


def _print_costs(costs: Sequence[CorpusCost]) -> None:
    for cost in costs:
        print(f"{cost.n_rows:,} rows, {cost.size_mb:.0f} MB on disk")
        for name, step in (
            ("build", cost.build),
            ("positive pairs", cost.positives),
            ("hard negatives", cost.negatives),
        ):
            if step:
                print(f"  {name:<16} {step.seconds:8.1f} s  cpu {step.cpu_seconds:7.1f} s  peak {step.peak_mb:6.0f} MB")
        _print_query("50 pairs of its own", cost.hits)
        if cost.task:
            _print_query("50 pairs of a task", cost.task)


def _print_query(name: str, cost: QueryCost) -> None:
    print(
        f"  {name}: median {cost.median_ms:.1f} ms, 95 % {cost.p95_ms:.1f} ms, cpu {cost.cpu_ms:.1f} ms, "
        f"{cost.pairs_found:.1f} pairs with {cost.rows_found:.1f} sentences, peak {cost.peak_mb:.0f} MB"
    )
