"""Experiments -> tables: measures, our results beside published ones, comparisons of methods."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from erda.benchmark.experiments import PERCENT, Experiment, Line
from erda.benchmark.measures import CANDIDATES
from erda.benchmark.records import Record
from erda.benchmark.report.comparison import compare_all, p_value
from erda.benchmark.report.published import find_published
from erda.benchmark.report.table_formats import Cell, Cells, ResultTable
from erda.benchmark.statistics import Summary

OURS = "ours"
MEAN_NOTE = "Mean ± standard deviation (n - 1) over n streams."
OVER_RELATIONS = "95 % over relations"
RELATION_NOTE = (
    "95 % over relations: percentile bootstrap of the accuracy that resamples whole relations (10,000 times)."
)
SHARED_NOTE = (
    "p: two-sided paired t-test over streams; Holm: corrected over the rows. Streams that share questions or examples "
    "are not independent, and then p says nothing about other questions; the interval over relations does."
)
DEVIATION_NOTE = "Mean ± standard deviation; the paper's has n in its denominator, ours n - 1."


# -- measures ----------------------------------------------------------------------------------------------------------


def accuracy_table(experiment: Experiment, protocol: str) -> ResultTable:
    """Accuracy after each task by one protocol, with the chance level in the last row."""
    tasks = range(experiment.n_tasks)
    rows: list[Cells] = [
        (line.label, len(line.records), *(line.accuracy(protocol, k) for k in tasks)) for line in experiment.lines
    ]
    chance = [
        Summary.of(value for one in experiment.records if (value := one.after("chance", protocol, k)) is not None)
        for k in tasks
    ]
    rows.append(("chance", None, *(one and f"{PERCENT * one.mean:.2f}" for one in chance)))
    return ResultTable(
        name=f"accuracy-{protocol}",
        title=f"Accuracy (%) after each task, protocol {protocol}: {experiment.title}",
        columns=("method", "n", *(f"task {k + 1}" for k in tasks)),
        rows=tuple(rows),
        notes=(MEAN_NOTE, *experiment.notes),
    )


def final_table(experiment: Experiment) -> ResultTable:
    """Micro and macro accuracy, forgetting and accuracy on the newest task, after the last task by each protocol."""
    rows = [
        (
            line.label,
            protocol,
            len(line.records),
            line.accuracy(protocol, -1),
            interval(line.relation_interval(protocol)),
            line.after("macro", protocol, -1),
            line.forgetting(protocol),
            line.newest(protocol),
        )
        for protocol in experiment.protocols
        for line in experiment.lines
    ]
    fallback = "Protocol candidates: not measured, the dataset lists none."
    if CANDIDATES in experiment.protocols:
        fallback = f"Fallback to all-seen (no listed relation learned yet), after each task: {_fallback(experiment)}."
    forgetting = (
        "Forgetting: best earlier accuracy on a task minus its final one, mean over all tasks but the last, in points."
    )
    newest = "Newest task: accuracy on the questions of the last task alone."
    return ResultTable(
        name="final",
        title=f"After task {experiment.n_tasks} (%): {experiment.title}",
        columns=(
            "method",
            "protocol",
            "n",
            "accuracy",
            OVER_RELATIONS,
            "macro over tasks",
            "forgetting",
            "newest task",
        ),
        rows=tuple(rows),
        notes=(MEAN_NOTE, RELATION_NOTE, forgetting, newest, fallback, *experiment.notes),
        text_columns=2,
    )


def _fallback(experiment: Experiment) -> str:
    shares = (
        fmean(record.n_fallback[k] / sum(record.n_test[: k + 1]) for record in experiment.records)
        for k in range(experiment.n_tasks)
    )
    return ", ".join(f"{PERCENT * share:.1f} %" for share in shares)


def cost_table(experiment: Experiment) -> ResultTable:
    """Seconds and memory per stream."""
    rows = [
        (
            line.label,
            len(line.records),
            line.summary(lambda record: sum(record.seconds["learn"])),
            line.summary(lambda record: sum(record.seconds["predict"])),
            line.summary(lambda record: record.peak_memory_mb),
        )
        for line in experiment.lines
    ]
    devices = sorted({f"{record.device} ({record.versions.get('machine', '?')})" for record in experiment.records})
    return ResultTable(
        name="cost",
        title=f"Cost of one stream of {experiment.n_tasks} tasks: {experiment.title}",
        columns=("method", "n", "learn (s)", "predict (s)", "peak memory (MB)"),
        rows=tuple(rows),
        notes=(f"Device: {', '.join(devices)}. Memory is the highest of the whole process up to the end of a run.",),
        decimals=1,
    )


def runs_table(experiment: Experiment) -> ResultTable:
    """Accuracy of every run after the last task, with its stream; the paper's where it prints single runs."""
    published = {line.label: own.by_seed for line in experiment.lines if (own := find_published(line.first))}
    has_paper = any(published.values())

    def row(line: Line, record: Record) -> Cells:
        last = [record.after("accuracy", protocol, -1) for protocol in experiment.protocols]
        shown = [one if one is None else f"{PERCENT * one:.2f}" for one in last]
        theirs = published.get(line.label, {}).get(str(record.seed))
        paper = [f"{theirs[-1]:.2f}" if theirs else None] if has_paper else []
        return (line.label, record.seed, *shown, *paper, record.digest[:8])

    notes = ["Runs with the same stream learned and answered the same examples."]
    notes += [f"Paper: Qin and Joty (2022), Table 5, protocol {CANDIDATES}; its run 1 is the first seed."] * has_paper
    return ResultTable(
        name="runs",
        title=f"Every run after task {experiment.n_tasks} (%): {experiment.title}",
        columns=("method", "seed", *experiment.protocols, *(["paper"] if has_paper else []), "stream"),
        rows=tuple(row(line, record) for line in experiment.lines for record in line.records),
        notes=tuple(notes),
    )


# -- beside published numbers ------------------------------------------------------------------------------------------


def published_table(experiment: Experiment) -> ResultTable | None:
    """Accuracy after the last task beside the paper's, by its protocol; None if no row of the paper matches."""
    rows: list[Cells] = []
    remarks: dict[str, list[str]] = {}
    for line in experiment.lines:
        ours, row, n = line.accuracy(CANDIDATES, -1), find_published(line.first), len(line.records)
        if row is None:
            rows.append((line.label, None, None, n, ours, None, None))
            continue
        difference = points(ours.mean - row.last.mean) if ours else None
        rows.append((line.label, row.row, row.source, n, ours, row.last, difference))
        if row.remark:
            remarks.setdefault(row.remark, []).append(line.label)
    if all(row[1] is None for row in rows):
        return None
    return ResultTable(
        name="published",
        title=f"Ours and the paper's after task {experiment.n_tasks} (%), protocol {CANDIDATES}: {experiment.title}",
        columns=("method", "the paper's name", "where", "n", OURS, "paper", "difference"),
        rows=tuple(rows),
        notes=(
            f"Paper: Qin and Joty (2022), six runs. {DEVIATION_NOTE}",
            "Difference: ours minus the paper's, in points.",
            *(f"{', '.join(labels)}: {remark}." for remark, labels in remarks.items()),
            *experiment.notes,
        ),
        text_columns=3,
    )


# -- comparisons -------------------------------------------------------------------------------------------------------


def comparison_table(experiment: Experiment, reference: str, protocol: str) -> ResultTable:
    """The reference minus each other line after the last task, with plain and corrected p of the t-test."""
    family = compare_all(experiment, reference, protocol)
    rows: list[Cells] = [
        (
            one.second,
            one.n,
            None if one.difference is None else points(PERCENT * one.difference),
            interval(one.relation_interval, signed=True),
            p_value(one.p),
            p_value(one.p_corrected),
        )
        for one in family.comparisons
    ]
    return ResultTable(
        name=f"comparison-{protocol}",
        title=f"{reference} minus each, after task {experiment.n_tasks} (points), protocol {protocol}: "
        f"{experiment.title}",
        columns=("against", "n", "difference", OVER_RELATIONS, "p (t)", "p (t, Holm)"),
        rows=tuple(rows),
        notes=(
            SHARED_NOTE,
            RELATION_NOTE,
            *(f"{one.second}: {one.note}" for one in family.comparisons if one.note),
            *family.refused,
        ),
    )


def points(value: float) -> str:
    """Format a difference in points, with its sign."""
    return f"{value:+.2f}"


def interval(ends: Sequence[float] | None, *, signed: bool = False) -> Cell:
    """Format an interval of fractions in per cent or points."""
    if ends is None:
        return None
    return " to ".join(f"{PERCENT * end:+.2f}" if signed else f"{PERCENT * end:.2f}" for end in ends)
