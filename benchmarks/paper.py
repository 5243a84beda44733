"""Figures of the paper's tables, from the records of `erda paper`, and the minutes that a table takes.

python benchmarks/paper.py runs/paper                 nothing is run
python benchmarks/paper.py --time main --corpus corpora/wiki --out runs/timing
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from erda.benchmark.experiments import PERCENT, Line
from erda.benchmark.measures import ALL_SEEN, CANDIDATES
from erda.benchmark.paper.paper_plan import run_paper
from erda.benchmark.paper.paper_tables import choose_tables, paper_layout
from erda.benchmark.records import Record, read_records
from erda.benchmark.report.comparison import compare_lines, different_streams
from erda.benchmark.report.published import find_published
from erda.benchmark.report.report_files import Section
from erda.cli.demo_commands import seeds
from erda.errors import RecordError, SettingsError, join_faults
from erda.settings.load import given_values
from targets import Figure, measure

ERDA, WITHOUT_AUGMENTATION = "ERDA", "ERDA w.o. DA"
BASELINES = ("IDLVQ-C", "EMAR", "EMR", "SeqRun")  # ERDA must exceed them
LIMITS = {"main": 10, "minilm": 60}  # minutes on two cores


def paper_figures(directory: Path) -> list[Figure]:
    """Figures from the records of `erda paper` in a folder, without tables that were not run."""
    sections = {section.name: section for section in paper_layout(read_records(directory))}
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
    best = lines.get(ERDA) or lines.get(WITHOUT_AUGMENTATION)
    if best is None:
        return figures
    final = _final(best)
    figures.append(Figure(f"{best.label}, BiLSTM, candidates after task 8", final, "%", ">= 52"))
    figures.append(Figure("  all-seen", _final(best, ALL_SEEN), "%"))
    if best.label == ERDA and WITHOUT_AUGMENTATION in lines:
        figures += _over(best, [lines[WITHOUT_AUGMENTATION]], least=1.5)
    figures += _over(best, [lines[name] for name in BASELINES if name in lines], least=0.0)
    for line in lines.values():
        published = find_published(line.first, CANDIDATES)
        if published is not None and line.method != "erda":
            theirs = published.last.mean
            away = _final(line) - theirs
            name = f"{line.label} against the paper's {theirs:.2f}"
            figures.append(Figure(name, away, "points"))
            figures.append(Figure("  away from it", abs(away), "points", "<= 5"))
    return figures


def _over(best: Line, others: list[Line], *, least: float) -> list[Figure]:
    """Difference of one line to others, and p of the paired t-test with Holm's correction."""
    figures = []
    same = [line for line in others if not different_streams(best, line)]
    for one in compare_lines(best, same, protocol=CANDIDATES):
        gain = None if one.difference is None else PERCENT * one.difference
        figures.append(Figure(f"  over {one.second}", gain, "points", f">= {least:g}"))
        figures.append(Figure("    p, paired t-test (Holm)", one.p_corrected, "", "< 0.05"))
    return figures


def _scaling_figures(section: Section) -> list[Figure]:
    """Ratio of learning seconds of a late task to an early one, beside the same ratio of training sentences."""
    figures = []
    for line in section.experiment.lines:
        record = line.first
        seconds, n_tasks = record.seconds["learn"], record.n_tasks
        early, late = range(1, 6), range(n_tasks - 5, n_tasks)
        ratio = statistics.median(seconds[k] for k in late) / statistics.median(seconds[k] for k in early)
        name = f"{line.label}, {n_tasks} tasks: a late task's seconds over an early one's"
        if line.method != "erda":
            figures.append(Figure(name, ratio, "x"))
            continue
        expected = _sentences(record, late) / _sentences(record, early)
        figures.append(Figure(name, ratio, "x", f"<= {1.2 * expected:.2f}"))
    return figures


def _sentences(record: Record, tasks: range) -> float:
    """Mean number of training sentences of ERDA in these tasks: new ones in 1 + 2 epochs, the memory in 2.

    The memory has one exemplar per relation, each with two hard negatives.
    """
    way = len(record.order[1])
    return statistics.mean(3 * way * record.shots + 2 * 3 * way * (k + 1) for k in tasks)


def _final(line: Line, protocol: str = CANDIDATES) -> float:
    summary = line.accuracy(protocol, -1)
    if summary is None:
        raise RecordError(f"{line.label}: was not measured by the protocol {protocol}.")
    return summary.mean


def time_table(
    table: str, out: Path, *, corpus: str | None = None, n_processes: int = 2, seeds: Sequence[int] | None = None
) -> list[Figure]:
    """Wall-clock minutes of a table without earlier runs, with `n_processes` processes."""
    if any(out.rglob("record.json")):
        raise SettingsError(f"{out} already holds records, which would not be run again; name a new folder.")
    tables = [one for one in choose_tables([table]) if one.name == table]
    start = perf_counter()
    changes = given_values({"corpus": corpus, "seeds": seeds})
    done = run_paper(tables, out=out, changes=changes, n_processes=n_processes)
    minutes = (perf_counter() - start) / 60
    if done.faults:
        raise RecordError(join_faults(done.faults))
    limit = LIMITS.get(table) if seeds is None else None  # targets apply to all six orders
    name = f"table '{table}', {done.n_new} runs, {n_processes} processes"
    return [Figure(name, minutes, "min", f"<= {limit}" if limit else "")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each figure beside its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("directory", metavar="DIR", type=Path, nargs="?", help="the --out folder of `erda paper`")
    what.add_argument("--time", metavar="TABLE", help="run a table of `erda paper --list` by the clock")
    parser.add_argument("--out", type=Path, metavar="DIR", help="with --time: a new folder for the records")
    parser.add_argument("--corpus", metavar="DIR", help="for the augmented rows")
    parser.add_argument("--seeds", type=seeds, metavar="N,N", help="orders to run (default: all six)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at work at once (default: 2)")
    options = parser.parse_args(arguments)
    if options.directory:
        return measure(lambda: paper_figures(options.directory))
    if not options.out:
        parser.error("--time needs --out, a new folder for the records")
    return measure(
        lambda: time_table(
            options.time, options.out, corpus=options.corpus, n_processes=options.jobs, seeds=options.seeds
        )
    )


if __name__ == "__main__":
    sys.exit(main())
