"""The figures of the paper's tables: from records beside their targets, and the time that a main table takes."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter

from erda.benchmark.core_bench import Figure
from erda.benchmark.metrics import ALL_SEEN, CANDIDATES
from erda.benchmark.paper.plan import ERDA, WITHOUT_AUGMENTATION, Changes, choose_tables
from erda.benchmark.paper.running import run_paper
from erda.benchmark.records import Record, read_records
from erda.benchmark.report.comparison import published_of
from erda.benchmark.report.contents import sections_of
from erda.benchmark.report.experiments import PERCENT, Line
from erda.benchmark.report.sections import Section
from erda.benchmark.statistics import compare
from erda.errors import RecordError, SettingsError, join_faults

BASELINES = ("IDLVQ-C", "EMAR", "EMR", "SeqRun")  # what ERDA must be over
LIMITS = {"main": 10, "minilm": 60}  # minutes on two cores


def paper_figures(directory: Path) -> list[Figure]:
    """What the records of `erda paper` in a folder say of the targets; tables that were not run are not there."""
    sections = {section.name: section for section in sections_of(read_records(directory))}
    figures: list[Figure] = []
    if "main" in sections:
        figures += _main_figures(sections["main"])
    for name, section in sections.items():
        if name.startswith("scaling"):
            figures += _scaling_figures(section)
    if not figures:
        raise RecordError(f"{directory}: has no records of the main table; run `erda paper main` first.")
    return figures


def _main_figures(section: Section) -> list[Figure]:
    lines = {line.label: line for line in section.experiment.lines}
    figures: list[Figure] = []
    best = lines.get(ERDA.label) or lines.get(WITHOUT_AUGMENTATION.label)
    if best is None:
        return figures
    final = _final(best)
    figures.append(Figure(f"{best.label}, BiLSTM, candidates after task 8", final, "%", ">= 52", final >= 52))
    figures.append(Figure("  all-seen", _final(best, ALL_SEEN), "%", "", True))
    if best.label == ERDA.label and WITHOUT_AUGMENTATION.label in lines:
        figures += _over(best, [lines[WITHOUT_AUGMENTATION.label]], least=1.5)
    figures += _over(best, [lines[name] for name in BASELINES if name in lines], least=0.0)
    for line in lines.values():
        published = published_of(line, CANDIDATES)
        if published is not None and line.method != "erda":
            theirs = published.last.mean
            away = _final(line) - theirs
            name = f"{line.label} against the paper's {theirs:.2f}"
            figures.append(Figure(name, away, "points", "within 5", abs(away) <= 5))
    return figures


def _over(best: Line, others: list[Line], *, least: float) -> list[Figure]:
    """How far one line is over others, and p of the paired t-test, corrected for their number (Holm)."""
    figures = []
    for one in compare(best, others, protocol=CANDIDATES):
        gain = PERCENT * (one.difference or 0.0)
        figures.append(Figure(f"  over {one.second}", gain, "points", f">= {least:g}", gain >= least))
        p = one.p_t_corrected
        if p is not None:
            figures.append(Figure("    p, paired t-test (Holm)", p, "", "< 0.05", p < 0.05))
    return figures


def _scaling_figures(section: Section) -> list[Figure]:
    """Seconds of learning a late task over those of an early one, beside the same ratio of sentences learned from."""
    figures = []
    for line in section.experiment.lines:
        record = line.records[0]
        seconds, n_tasks = record.seconds["learn"], record.n_tasks
        early, late = range(1, 6), range(n_tasks - 5, n_tasks)
        ratio = statistics.median(seconds[k] for k in late) / statistics.median(seconds[k] for k in early)
        name = f"{line.label}, {n_tasks} tasks: a late task's seconds over an early one's"
        if line.method != "erda":
            figures.append(Figure(name, ratio, "x", "", True))
            continue
        expected = _sentences(record, late) / _sentences(record, early)
        figures.append(Figure(name, ratio, "x", f"<= {1.2 * expected:.2f}", ratio <= 1.2 * expected))
    return figures


def _sentences(record: Record, tasks: range) -> float:
    """Sentences that ERDA learns from in these tasks, on average: the new ones in 1 + 2 epochs, and in 2 the memory.

    The memory is one exemplar a relation; each goes with its two hard negatives.
    """
    way = len(record.order[1])
    return statistics.mean(3 * way * record.shots + 2 * 3 * way * (k + 1) for k in tasks)


def _final(line: Line, protocol: str = CANDIDATES) -> float:
    summary = line.accuracy(protocol, -1)
    if summary is None:
        raise RecordError(f"{line.label}: was not measured by the protocol {protocol}.")
    return summary.mean


def time_table(
    table: str, out: Path, *, corpus: str | None = None, n_processes: int = 2, seeds: str | None = None
) -> list[Figure]:
    """Minutes by the clock that a table takes from nothing, with so many processes at once."""
    if any(out.rglob("record.json")):
        raise SettingsError(f"{out} already holds records, which would not be run again; name a new folder.")
    tables = [one for one in choose_tables([table]) if one.name == table]
    start = perf_counter()
    done = run_paper(tables, out=out, changes=Changes(corpus=corpus, seeds=seeds), n_processes=n_processes)
    minutes = (perf_counter() - start) / 60
    if done.faults:
        raise RecordError(join_faults(done.faults))
    limit = LIMITS.get(table) if seeds is None else None  # the targets are those of all six orders
    target = f"<= {limit}" if limit else ""
    name = f"table '{table}', {done.n_runs} runs, {n_processes} processes"
    return [Figure(name, minutes, "min", target, limit is None or minutes <= limit)]
