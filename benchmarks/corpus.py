"""Cost of a corpus: time and memory to build it, and to look up the pairs of a task.

Every measurement runs in a fresh process and reports the peak memory of that process (the kernel's VmHWM).

python benchmarks/corpus.py corpora/mine
python benchmarks/corpus.py corpora/new --sources wiki-large-*.jsonl.gz --queries fewrel/cfrl/5-shot/train_0.txt
python benchmarks/corpus.py --sources wiki-large-*.jsonl.gz --sizes 10000 100000 1000000
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from erda.corpus.corpus_build import build_corpus
from erda.corpus.corpus_store import CorpusStore
from erda.corpus.sources import BuildSettings
from erda.errors import DataError, ErdaError
from erda.text.keys import EntityPair
from erda.text.reading import read_lines

TASK_PAIRS = 50  # a 10-way 5-shot task


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall-clock and processor seconds, and peak memory in MB."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class QueryCost:
    """Milliseconds (median and 95th percentile) to look up and read the sentences of all pairs of a task."""

    median_ms: float
    p95_ms: float
    cpu_ms: float
    pairs_found: float
    rows_found: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class CorpusCost:
    """Measurements of one corpus; `task` is None without a file of queries."""

    n_rows: int
    size_mb: float
    build: Cost | None
    hits: QueryCost
    task: QueryCost | None


def bench_corpus(
    folder: Path,
    *,
    sources: Sequence[Path] = (),
    queries: Path | None = None,
    repeats: int = 20,
    settings: BuildSettings | None = None,
) -> CorpusCost:
    """Measure the corpus in `folder`; with `sources`, build it first.

    Queries are `TASK_PAIRS` pairs sampled from the corpus (all are found: the worst case) and, with `queries`
    (a JSONL file or a CFRL split), as many sampled from that file.
    """
    built = None
    if sources:
        if folder.exists():
            raise DataError(f"{folder} exists; a build is measured into a new folder.")
        built = _alone(_build, list(sources), folder, settings or BuildSettings())
    store = CorpusStore.open(folder)
    size = sum(path.stat().st_size for path in store.folder.iterdir() if path.is_file())
    task = _alone(_task_queries, folder, queries, repeats) if queries else None
    return CorpusCost(
        n_rows=len(store),
        size_mb=size / 1e6,
        build=built,
        hits=_alone(_own_queries, folder, repeats),
        task=task,
    )


def growth(
    sources: Sequence[Path], sizes: Sequence[int], scratch: Path, *, queries: Path | None = None, repeats: int = 20
) -> list[CorpusCost]:
    """The same measurements for the first `sizes` rows of JSONL sources, in the temporary folder `scratch`."""
    costs = []
    for size in sizes:
        folder = scratch / f"rows-{size}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rows = _first_rows(sources, size, folder / "rows.jsonl.gz")
        costs.append(bench_corpus(folder / "corpus", sources=[rows], queries=queries, repeats=repeats))
        shutil.rmtree(folder)
    return costs


def _first_rows(sources: Sequence[Path], size: int, path: Path) -> Path:
    lines = (line for source in sources for _, line in read_lines(source))
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        n_lines = sum(1 for line in islice(lines, size) if file.write(line + "\n"))
    if n_lines < size:
        raise DataError(f"the sources hold {n_lines:,} rows; {size:,} were asked for.")
    return path


def _alone(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Run a measurement in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def _peak_mb() -> float:
    """Peak memory of this process; 0 if the system does not report it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1e3


def _timed(work: Callable[[], object]) -> Cost:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - start, time.process_time() - cpu, _peak_mb())


def _build(sources: list[Path], folder: Path, settings: BuildSettings) -> Cost:
    return _timed(lambda: build_corpus(sources, folder, settings=settings))


def _own_queries(folder: Path, repeats: int) -> QueryCost:
    store = CorpusStore.open(folder)
    rng = random.Random(0)
    n_rows = len(store)
    drawn = [sorted(rng.sample(range(n_rows), min(TASK_PAIRS, n_rows))) for _ in range(repeats)]
    return _query_cost(store, [[EntityPair.of(example) for example in store.rows(rows)] for rows in drawn])


def _task_queries(folder: Path, queries: Path, repeats: int) -> QueryCost:
    pairs = _pairs_of(queries)
    rng = random.Random(0)
    drawn = [rng.sample(pairs, min(TASK_PAIRS, len(pairs))) for _ in range(repeats)]
    return _query_cost(CorpusStore.open(folder), drawn)


def _pairs_of(path: Path) -> list[EntityPair]:
    pairs = []
    for _, line in read_lines(path):
        if line.startswith("{"):
            value = json.loads(line)
            head, tail = value["head"], value["tail"]
            pairs.append(EntityPair(head["name"], tail["name"], head.get("id"), tail.get("id")))
        elif len(fields := line.rstrip("\n").split("\t")) == 9:
            pairs.append(EntityPair(fields[3], fields[5], fields[7] or None, fields[8] or None))
    if not pairs:
        raise DataError(f"{path}: no entity pair in it; expected JSONL or a CFRL split.")
    return pairs


def _query_cost(store: CorpusStore, tasks: list[list[EntityPair]]) -> QueryCost:
    store.rows([0, len(store) - 1])  # the first query also loads libraries
    store.sentences_of(tasks[0])
    found = []
    times = []
    cpu = time.process_time()
    for task in tasks:
        start = time.perf_counter()
        found.append(store.sentences_of(task))
        times.append(1e3 * (time.perf_counter() - start))
    cpu = time.process_time() - cpu
    ranked = sorted(times)
    return QueryCost(
        median_ms=statistics.median(times),
        p95_ms=ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))],
        cpu_ms=1e3 * cpu / len(tasks),
        pairs_found=statistics.mean(sum(map(bool, groups)) for groups in found),
        rows_found=statistics.mean(sum(map(len, groups)) for groups in found),
        peak_mb=_peak_mb(),
    )


# -- the command -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", type=Path, nargs="?", help="a corpus, or where to build one")
    parser.add_argument("--sources", metavar="FILE", type=Path, nargs="+", default=[], help="build DIR of these first")
    parser.add_argument(
        "--sizes", metavar="N", type=int, nargs="+", help="instead: corpora of the first N rows of the JSONL sources"
    )
    parser.add_argument("--queries", metavar="FILE", type=Path, help="entity pairs to look for: JSONL or a CFRL split")
    parser.add_argument("--repeats", metavar="N", type=int, default=20, help="queries of 50 pairs (default: 20)")
    options = parser.parse_args(arguments)
    if not options.directory and not options.sizes:
        parser.error("name the folder of a corpus, or give --sources and --sizes")
    settings = {"queries": options.queries, "repeats": options.repeats}
    try:
        if options.sizes:
            with tempfile.TemporaryDirectory() as scratch:
                costs = growth(options.sources, options.sizes, Path(scratch), **settings)
        else:
            costs = [bench_corpus(options.directory, sources=options.sources, **settings)]
    except ErdaError as fault:
        print(fault, file=sys.stderr)
        return 2
    for cost in costs:
        print("\n".join(lines_of(cost)))
    return 0


def lines_of(cost: CorpusCost) -> list[str]:
    """Costs as lines of text."""
    lines = [f"{cost.n_rows:,} rows, {cost.size_mb:.0f} MB on disk"]
    steps = {"build": cost.build}
    for name, step in steps.items():
        if step:
            lines.append(
                f"  {name:<16} {step.seconds:8.1f} s  cpu {step.cpu_seconds:7.1f} s  peak {step.peak_mb:6.0f} MB"
            )
    for name, query in {"50 pairs of its own": cost.hits, "50 pairs of a task": cost.task}.items():
        if query:
            lines.append(
                f"  {name}: median {query.median_ms:.1f} ms, 95 % {query.p95_ms:.1f} ms, cpu {query.cpu_ms:.1f} ms, "
                f"{query.pairs_found:.1f} pairs with {query.rows_found:.1f} sentences, peak {query.peak_mb:.0f} MB"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
