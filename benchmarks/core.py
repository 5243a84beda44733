"""Core figures: accuracy and time of the published stream, the cache of frozen layers, start-up.

python benchmarks/core.py                    start-up, stream, cache
python benchmarks/core.py posterior          a stream over MiniLM, and tuned: minutes
python benchmarks/core.py markers --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from erda.benchmark.records import Record, unpack_predictions
from erda.benchmark.run.planned_runs import run_experiment
from erda.cli.demo_commands import seeds
from erda.errors import ErdaError, join_faults
from erda.settings.load import run_settings
from targets import Figure, measure


def start_up(options: argparse.Namespace) -> Iterator[Figure]:
    """Seconds of `erda --help`, median of five."""
    times = []
    for _ in range(5):
        start = perf_counter()
        subprocess.run([sys.executable, "-m", "erda", "--help"], check=True, capture_output=True)
        times.append(perf_counter() - start)
    yield Figure("erda --help", statistics.median(times), "s", "< 0.5")


def stream(options: argparse.Namespace) -> Iterator[Figure]:
    """ERDA and SeqRun with the BiLSTM on FewRel 5-shot: accuracy after task 8, seconds per stream, peak memory."""
    erda, seqrun = (
        _run(options.out / "core", methods=method, encoder="bilstm", seeds=options.seeds)
        for method in ("erda", "seqrun")
    )
    for protocol, target in (("candidates", ">= 49"), ("all-seen", ">= 20")):
        reached, forgot = _last(erda, protocol), _last(seqrun, protocol)
        yield Figure(f"ERDA, BiLSTM, {protocol} after task 8", reached, "%", target)
        yield Figure("  SeqRun, which forgets", forgot, "%")
        yield Figure("  ERDA over SeqRun", reached - forgot, "points", ">= 10")
    seconds = statistics.median(map(_seconds, erda))
    yield Figure("ERDA, BiLSTM, one stream with all evaluations (median)", seconds, "s", "<= 5")
    yield Figure("peak memory of the process", max(one.peak_memory_mb for one in erda) / 1000, "GB", "<= 2")


def cache(options: argparse.Namespace) -> Iterator[Figure]:
    """One stream, MiniLM in mode `paper`: with an empty cache, with a full one, and without one."""
    folder = options.out / f"cache-{options.tasks}"

    def one_stream(name: str, gigabytes: float) -> Record:
        settings = {"encoder.mode": "paper", "n_tasks": options.tasks, "cache_gb": gigabytes}
        return _run(folder / name, methods="erda", encoder="minilm", seeds=100, settings=settings)[0]

    empty, filled, without = one_stream("empty", 4.0), one_stream("filled", 4.0), one_stream("without", 0.0)
    best = [unpack_predictions(one)["all-seen"] for one in (filled, without)]
    yield Figure(f"MiniLM paper, {options.tasks} tasks, without the cache", _seconds(without), "s")
    yield Figure("  with it, empty at the start", _seconds(empty), "s")
    yield Figure("  with it, filled by an earlier run", _seconds(filled), "s")
    yield Figure("  times faster with it", _seconds(without) / _seconds(filled), "x", ">= 6")
    yield Figure("  predictions that are the same", float(np.mean(best[0] == best[1]) * 100), "%", "== 100")


def posterior(options: argparse.Namespace) -> Iterator[Figure]:
    """One stream over MiniLM with its adapter: with an empty cache, with a full one, and tuned."""
    folder = options.out / f"posterior-{options.tasks}"
    settings = {"n_tasks": options.tasks, "cache_dir": str(folder / "cache")}
    for name, method, part, target in (
        (f"Posterior, MiniLM, {options.tasks} tasks, from nothing", "posterior", "empty", "<= 180"),
        ("  with its sentences in the cache", "posterior", "filled", "<= 15"),
        ("  posterior-tuned", "posterior-tuned", "tuned", "<= 900"),
    ):
        (record,) = _run(folder / part, methods=method, encoder="minilm", seeds=100, settings=settings)
        yield Figure(name, _seconds(record), "s", target)


def markers(options: argparse.Namespace) -> Iterator[Figure]:
    """ERDA with MiniLM, entity marks, all layers trained."""
    preset = "fewrel-5-shot-minilm"
    records = _run(options.out / "markers", methods="erda", preset=preset, seeds=options.seeds, device=options.device)
    name = f"ERDA, MiniLM markers, all-seen after task 8, n={len(records)}"
    yield Figure(name, _last(records, "all-seen"), "%", ">= 45")
    yield Figure("  candidates", _last(records, "candidates"), "%")


def _run(out: Path, *, preset: str = "fewrel-5-shot", **asked: Any) -> tuple[Record, ...]:
    finished = run_experiment(run_settings(preset=preset, **asked), out=out)
    if finished.faults:
        raise ErdaError(join_faults(finished.faults))
    return finished.records


def _seconds(record: Record) -> float:
    return sum(map(sum, record.seconds.values()))


def _last(records: Sequence[Record], protocol: str) -> float:
    return 100 * statistics.mean(values[-1] for one in records if (values := one.accuracy[protocol]))


DEFAULT = ("start-up", "stream", "cache")
MEASURES: dict[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
    "start-up": start_up,
    "stream": stream,
    "cache": cache,
    "posterior": posterior,
    "markers": markers,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen measurements and print each figure beside its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", nargs="*", metavar="WHAT", help=f"of {', '.join(MEASURES)} (default: {', '.join(DEFAULT)})"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="records (default: runs/bench)")
    parser.add_argument("--seeds", type=seeds, metavar="N,N", help="orders to run (default: all six)")
    parser.add_argument(
        "--tasks", type=int, default=8, metavar="N", help="of the streams of `cache` and `posterior` (default: 8)"
    )
    parser.add_argument("--device", metavar="NAME", help="of `markers`: cpu, cuda or cuda:N (default: cpu)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.what if name not in MEASURES]:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    chosen = options.what or DEFAULT
    return measure(lambda: (figure for name in chosen for figure in MEASURES[name](options)))


if __name__ == "__main__":
    sys.exit(main())
