"""Experiments -> tables of what was measured. No number is typed by hand."""

from __future__ import annotations

from collections.abc import Iterable

from erda.benchmark.report.experiments import PERCENT, Experiment, Line, at_task
from erda.benchmark.report.tables import Cell, Summary, Table


def accuracy_table(experiment: Experiment, protocol: str) -> Table:
    """Accuracy after each task by one protocol, with the chance level below."""
    rows: list[tuple[Cell, ...]] = []
    for line in experiment.lines:
        after = [line.accuracy(protocol, k) for k in range(experiment.n_tasks)]
        rows.append((line.label, len(line.records), *after))
    chance = [
        Summary.of(value for record in experiment.records if (value := at_task(record.chance[protocol], k)) is not None)
        for k in range(experiment.n_tasks)
    ]
    rows.append(("chance", None, *(one and f"{PERCENT * one.mean:.2f}" for one in chance)))
    return Table(
        name=f"accuracy-{protocol}",
        title=f"Accuracy (%) after each task, protocol {protocol}: {experiment.title}",
        columns=("method", "n", *(f"task {k + 1}" for k in range(experiment.n_tasks))),
        rows=tuple(rows),
        notes=(_mean_note(), *experiment.notes),
    )


def final_table(experiment: Experiment) -> Table:
    """After the last task: micro and macro accuracy and forgetting, by each protocol."""

    def row(line: Line, protocol: str) -> tuple[Cell, ...]:
        micro = line.accuracy(protocol, -1)
        macro = line.summary(lambda record: at_task(record.macro[protocol], -1), scale=PERCENT)
        forgotten = line.summary(lambda record: record.forgetting[protocol], scale=PERCENT)
        return (line.label, protocol, len(line.records), micro, macro, forgotten)

    rows = tuple(row(line, protocol) for protocol in experiment.protocols for line in experiment.lines)
    notes = [
        _mean_note(),
        "Forgetting: best earlier accuracy on a task minus its final one, mean over all tasks but the last, in points.",
    ]
    if "candidates" in experiment.protocols:
        notes.append(
            f"Fallback to all-seen (no listed relation learned yet), after each task: {_fallback(experiment)}."
        )
    else:
        notes.append("Protocol candidates: not measured, the dataset lists none.")
    return Table(
        name="final",
        title=f"After task {experiment.n_tasks} (%): {experiment.title}",
        columns=("method", "protocol", "n", "accuracy", "macro over tasks", "forgetting"),
        rows=rows,
        notes=(*notes, *experiment.notes),
        text_columns=2,
    )


def cost_table(experiment: Experiment) -> Table:
    """Seconds and memory of a stream."""

    def rows() -> Iterable[tuple[Cell, ...]]:
        for line in experiment.lines:
            yield (
                line.label,
                len(line.records),
                line.summary(lambda record: sum(record.seconds["learn"])),
                line.summary(lambda record: sum(record.seconds["predict"])),
                line.summary(lambda record: record.peak_memory_mb),
            )

    devices = ", ".join(
        sorted({f"{record.device} ({record.versions.get('machine', '?')})" for record in experiment.records})
    )
    return Table(
        name="cost",
        title=f"Cost of one stream of {experiment.n_tasks} tasks: {experiment.title}",
        columns=("method", "n", "learn (s)", "predict (s)", "peak memory (MB)"),
        rows=tuple(rows()),
        notes=(f"Device: {devices}. Memory is the highest of the whole process up to the end of a run.",),
        decimals=1,
    )


def runs_table(experiment: Experiment) -> Table:
    """Every run after the last task, with its stream."""
    rows: list[tuple[Cell, ...]] = []
    for line in experiment.lines:
        for record in line.records:
            last = [at_task(record.accuracy[protocol], -1) for protocol in experiment.protocols]
            shown = [one if one is None else f"{PERCENT * one:.2f}" for one in last]
            rows.append((line.label, record.seed, *shown, record.digest[:8]))
    return Table(
        name="runs",
        title=f"Every run after task {experiment.n_tasks} (%): {experiment.title}",
        columns=("method", "seed", *experiment.protocols, "stream"),
        rows=tuple(rows),
        notes=("Runs with the same stream learned and answered the same examples.",),
    )


def _mean_note() -> str:
    return "Mean ± standard deviation (n - 1) over n streams."


def _fallback(experiment: Experiment) -> str:
    shares = []
    for k in range(experiment.n_tasks):
        found = Summary.of(record.n_fallback[k] / sum(record.n_test[: k + 1]) for record in experiment.records)
        shares.append(f"{PERCENT * found.mean:.1f} %" if found else "")
    return ", ".join(shares)
