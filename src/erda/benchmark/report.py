"""Records -> experiments -> tables, figures and files. Nothing here trains, and no number is typed by hand.

An experiment is a set of records that may stand in one table: same dataset, shots, orders, encoder and pool. A line of
it is one method with one choice of settings, on one stream or more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from erda.benchmark.figures import draw_curve
from erda.benchmark.metrics import PROTOCOLS
from erda.benchmark.records import Record, read_records, write_whole
from erda.benchmark.tables import WRITERS, Cell, Summary, Table, to_markdown

FOLDER = "report"
PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Line:
    """One method with one choice of settings; `label` tells it from the others of its experiment."""

    label: str
    method: str
    records: tuple[Record, ...]  # by seed

    def summary(self, value: Callable[[Record], float | None], *, scale: float = 1.0) -> Summary | None:
        """Mean and deviation over the streams; None where a record does not have the value."""
        values = [value(record) for record in self.records]
        found = Summary.of([one for one in values if one is not None])
        return found.scaled(scale) if found and None not in values else None

    def accuracy(self, protocol: str, k: int) -> Summary | None:
        """Accuracy after task `k` in per cent (0 is the first task, -1 the last)."""
        return self.summary(lambda record: _at(record.accuracy[protocol], k), scale=PERCENT)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Records that may stand in one table."""

    title: str
    slug: str  # for names of files
    n_tasks: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """All records, line by line."""
        return tuple(record for line in self.lines for record in line.records)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that the dataset allows."""
        return tuple(name for name in PROTOCOLS if all(record.accuracy[name] for record in self.records))


# -- from records to experiments ---------------------------------------------------------------------------------------


def group_records(records: Iterable[Record]) -> tuple[Experiment, ...]:
    """Put records into experiments, in the order in which they come."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        key = [record.dataset, record.shots, record.order_family, record.encoder, record.evaluate_on, record.n_tasks]
        shape = {kind: record.settings.get(kind, {}) for kind in ("encoder", "stream")}
        groups.setdefault(json.dumps([key, shape], sort_keys=True), []).append(record)
    return tuple(_experiment(group) for group in groups.values())


def _experiment(records: Sequence[Record]) -> Experiment:
    first = records[0]
    extra = [
        f"{kind} {name}={value}"
        for kind in ("encoder", "stream")
        for name, value in first.settings.get(kind, {}).items()
    ]
    names = [Path(name).name for name in (first.dataset, first.encoder)]  # of a path only its end
    title = ", ".join([f"{names[0]} {first.shots}-shot", f"encoder {names[1]}", *extra])
    if first.evaluate_on != "test":
        title += f", measured on {first.evaluate_on} data"
    lines, notes = _lines(records)
    slug = re.sub(r"[^a-z0-9]+", "-", f"{title} {first.order_family}".lower()).strip("-")
    return Experiment(title, slug, first.n_tasks, lines, tuple(notes))


def _lines(records: Sequence[Record]) -> tuple[tuple[Line, ...], list[str]]:
    notes = []
    variants: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        corpus = Path(record.corpus).name or "none"  # where augmentation drew from
        settings = json.dumps({**record.settings.get("method", {}), "corpus": corpus}, sort_keys=True)
        by_seed = variants.setdefault((record.method, settings), {})
        if record.seed in by_seed:
            notes.append(f"{record.title} was found twice with the same settings; the first one counts.")
        by_seed.setdefault(record.seed, record)
    lines = []
    for (method, settings), by_seed in variants.items():
        others = [json.loads(other) for name, other in variants if name == method and other != settings]
        own = json.loads(settings)
        differing = [f"{name}={own[name]}" for name in own if any(other.get(name) != own[name] for other in others)]
        label = f"{method} ({', '.join(differing)})" if differing else method
        lines.append(Line(label, method, tuple(by_seed[seed] for seed in sorted(by_seed))))
    return tuple(lines), [*notes, *_stream_notes(lines)]


def _stream_notes(lines: Sequence[Line]) -> list[str]:
    """Warn where the lines of a table were not run on the same streams."""
    notes = []
    seeds = {line.label: [record.seed for record in line.records] for line in lines}
    if len({tuple(one) for one in seeds.values()}) > 1:
        listed = "; ".join(f"{label}: {', '.join(map(str, one))}" for label, one in seeds.items())
        notes.append(f"Not the same seeds in every line, so means are not paired ({listed}).")
    digests: dict[int, set[str]] = {}
    for line in lines:
        for record in line.records:
            digests.setdefault(record.seed, set()).add(record.digest)
    differing = [str(seed) for seed, found in digests.items() if len(found) > 1]
    if differing:
        notes.append(f"Seed {', '.join(differing)}: the lines were run on different streams (manifests differ).")
    return notes


# -- from experiments to tables ----------------------------------------------------------------------------------------


def accuracy_table(experiment: Experiment, protocol: str) -> Table:
    """Accuracy after each task by one protocol, with the chance level below."""
    rows: list[tuple[Cell, ...]] = []
    for line in experiment.lines:
        after = [line.accuracy(protocol, k) for k in range(experiment.n_tasks)]
        rows.append((line.label, len(line.records), *after))
    chance = [
        Summary.of(value for record in experiment.records if (value := _at(record.chance[protocol], k)) is not None)
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
        macro = line.summary(lambda record: _at(record.macro[protocol], -1), scale=PERCENT)
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

    devices = ", ".join(sorted({record.device for record in experiment.records}))
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
            last = [_at(record.accuracy[protocol], -1) for protocol in experiment.protocols]
            shown = [one if one is None else f"{PERCENT * one:.2f}" for one in last]
            rows.append((line.label, record.seed, *shown, record.digest[:8]))
    return Table(
        name="runs",
        title=f"Every run after task {experiment.n_tasks} (%): {experiment.title}",
        columns=("method", "seed", *experiment.protocols, "stream"),
        rows=tuple(rows),
        notes=("Runs with the same stream learned and answered the same examples.",),
    )


def tables_of(experiment: Experiment) -> tuple[Table, ...]:
    """Every table of an experiment."""
    accuracy = tuple(accuracy_table(experiment, protocol) for protocol in experiment.protocols)
    return (*accuracy, final_table(experiment), cost_table(experiment), runs_table(experiment))


def _at(values: Sequence[float] | None, k: int) -> float | None:
    return None if values is None else values[k]


def _mean_note() -> str:
    return "Mean ± standard deviation (n - 1) over n streams."


def _fallback(experiment: Experiment) -> str:
    shares = []
    for k in range(experiment.n_tasks):
        found = Summary.of(record.n_fallback[k] / sum(record.n_test[: k + 1]) for record in experiment.records)
        shares.append(f"{PERCENT * found.mean:.1f} %" if found else "")
    return ", ".join(shares)


# -- from tables to files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, and what could not be read."""

    experiments: tuple[Experiment, ...]
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    faults: tuple[str, ...]


def write_report(directory: Path, *, figures: bool = True) -> Report:
    """Read every record under `directory` and write tables and figures into `directory/report`."""
    found = read_records(directory)
    experiments = group_records(found.records)
    faults = list(found.faults)
    if figures and find_spec("matplotlib") is None:
        faults.append("Figures were not drawn: matplotlib is not installed here.")
        figures = False
    tables: list[Table] = []
    written: list[Path] = []
    for experiment in experiments:
        folder = directory / FOLDER if len(experiments) == 1 else directory / FOLDER / experiment.slug
        own = tables_of(experiment)
        tables += own
        for table in own:
            for suffix, write in WRITERS.items():
                written.append(folder / f"{table.name}.{suffix}")
                write_whole(written[-1], write(table).encode())
        if figures:
            written += draw_curve(experiment, folder / "curve")
        written.append(folder / "report.md")
        write_whole(written[-1], _markdown_page(experiment, own, figures=figures).encode())
    return Report(experiments, tuple(tables), tuple(written), tuple(faults))


def _markdown_page(experiment: Experiment, tables: Sequence[Table], *, figures: bool) -> str:
    picture = ["![Accuracy after each task](curve.png)"] if figures else []
    return "\n\n".join([f"# {experiment.title}", *picture, *(to_markdown(table) for table in tables)])
