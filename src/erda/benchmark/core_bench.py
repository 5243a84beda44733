"""The figures of the core, measured: accuracy and time of the published stream, the frozen-layer cache, start-up."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from erda.benchmark.records import Record, read_outcomes
from erda.benchmark.run.loop import run_all, run_directory
from erda.errors import ErdaError, join_faults
from erda.settings.runs import load_settings


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure beside its target."""

    name: str
    value: float
    unit: str
    target: str
    met: bool

    def line(self) -> str:
        """For the terminal."""
        verdict = ("met" if self.met else "NOT MET") if self.target else ""
        return f"{self.name:<58}{self.value:>9.2f} {self.unit:<8}{self.target:<14}{verdict}".rstrip()


def bench_core(out: Path, *, seeds: str | None = None) -> list[Figure]:
    """ERDA and SeqRun with the BiLSTM on FewRel 5-shot: accuracy after task 8, seconds a stream, peak memory."""
    by_method = {
        method: _run(out / "core", method=method, encoder="bilstm", seeds=seeds) for method in ("erda", "seqrun")
    }
    erda, seqrun = by_method["erda"], by_method["seqrun"]
    candidates, all_seen = (_last(erda, protocol) for protocol in ("candidates", "all-seen"))
    seconds = statistics.median(_seconds(record) for record in erda)
    memory = max(record.peak_memory_mb for record in erda) / 1000
    return [
        Figure("ERDA, BiLSTM, candidates after task 8", candidates, "%", ">= 49", candidates >= 49),
        Figure("ERDA, BiLSTM, all-seen after task 8", all_seen, "%", ">= 20", all_seen >= 20),
        Figure("SeqRun, BiLSTM, candidates after task 8", _last(seqrun, "candidates"), "%", "far below", True),
        Figure("SeqRun, BiLSTM, all-seen after task 8", _last(seqrun, "all-seen"), "%", "far below", True),
        Figure("ERDA, BiLSTM, one stream with all evaluations (median)", seconds, "s", "<= 8", seconds <= 8),
        Figure("peak memory of the process", memory, "GB", "<= 2", memory <= 2),
    ]


def bench_markers(out: Path, *, seeds: str | None = None, device: str | None = None) -> list[Figure]:
    """ERDA with MiniLM, entity marks, all layers trained."""
    records = _run(out / "markers", method="erda", preset="fewrel-5-shot-minilm", seeds=seeds, device=device)
    value = _last(records, "all-seen")
    name = f"ERDA, MiniLM markers, all-seen after task 8, n={len(records)}"
    return [
        Figure(name, value, "%", ">= 45", value >= 45),
        Figure("  candidates", _last(records, "candidates"), "%", "", True),
    ]


def bench_cache(out: Path, *, n_tasks: int = 8, seed: str = "100") -> list[Figure]:
    """One stream, MiniLM in mode `paper`: with an empty cache, again with what that left, and without any."""
    folder = out / f"cache-{n_tasks}"

    def stream(name: str, gigabytes: float) -> Record:
        sets = ["encoder.mode=paper", f"n_tasks={n_tasks}", f"cache_gb={gigabytes}"]
        return _run(folder / name, method="erda", encoder="minilm", seeds=seed, sets=sets)[0]

    empty, filled, without = stream("empty", 4.0), stream("filled", 4.0), stream("without", 0.0)
    best = [read_outcomes(run_directory(folder / name, filled)).best for name in ("filled", "without")]
    same = float(np.mean(best[0] == best[1]) * 100)
    ratio = _seconds(without) / _seconds(filled)
    return [
        Figure(f"MiniLM paper, {n_tasks} tasks, without the cache", _seconds(without), "s", "", True),
        Figure("  with it, empty at the start", _seconds(empty), "s", "", True),
        Figure("  with it, filled by an earlier run", _seconds(filled), "s", "", True),
        Figure("  times faster with it", ratio, "x", ">= 6", ratio >= 6),
        Figure("  predictions that are the same", same, "%", "100", same == 100),
    ]


def bench_help(n: int = 5) -> list[Figure]:
    """Seconds until `erda --help` has answered: the median of several."""
    times = []
    for _ in range(n):
        start = perf_counter()
        subprocess.run([sys.executable, "-m", "erda", "--help"], check=True, capture_output=True)
        times.append(perf_counter() - start)
    value = statistics.median(times)
    return [Figure("erda --help", value, "s", "< 0.5", value < 0.5)]


def _run(
    out: Path,
    *,
    method: str,
    encoder: str | None = None,
    seeds: str | None = None,
    preset: str = "fewrel-5-shot",
    device: str | None = None,
    sets: Sequence[str] = (),
) -> tuple[Record, ...]:
    flags = {"methods": method, "encoder": encoder, "seeds": seeds, "device": device}
    finished = run_all(load_settings(preset=preset, sets=sets, flags=flags), out=out)
    if finished.faults:
        raise ErdaError(join_faults(finished.faults))
    return finished.records


def _seconds(record: Record) -> float:
    return sum(record.seconds["learn"]) + sum(record.seconds["predict"])


def _last(records: Sequence[Record], protocol: str) -> float:
    values = [record.accuracy[protocol] for record in records]
    return 100 * statistics.mean(value[-1] for value in values if value)
