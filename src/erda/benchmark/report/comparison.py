"""Ours beside the paper's, and methods against each other: tables of differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from erda.benchmark.metrics import ALL_SEEN, CANDIDATES
from erda.benchmark.report.experiments import PERCENT, Experiment, Line
from erda.benchmark.report.published import Published, find_later, find_published
from erda.benchmark.report.tables import Cell, Table
from erda.benchmark.statistics import Comparison, compare, different_streams, smallest_sign_flip
from erda.errors import RecordError, unknown_name

LEVEL = 0.05  # of significance
OURS = "ours"
TESTS = ("t", "t, Holm", "sign-flip", "sign-flip, Holm")
DEVIATION_NOTE = "Mean ± standard deviation; the paper's has n in its denominator, ours n - 1."


# -- beside published numbers ------------------------------------------------------------------------------------------


def published_of(line: Line, protocol: str = CANDIDATES) -> Published | None:
    """The paper's row for a line: its records share everything that picks a row."""
    return find_published(line.records[0], protocol)


def describe(line: Line) -> str:
    """What the paper calls a line; its label where the paper has no such row."""
    row = published_of(line)
    return row.row if row else line.label


def published_table(experiment: Experiment) -> Table | None:
    """Accuracy after the last task beside the paper's, by its protocol; None where the paper has no row at all."""
    found = [(line, published_of(line)) for line in experiment.lines]
    if not any(row for _, row in found):
        return None
    rows: list[tuple[Cell, ...]] = []
    remarks: dict[str, list[str]] = {}
    for line, row in found:
        ours = line.accuracy(CANDIDATES, -1)
        n = len(line.records)
        if row is None:
            rows.append((line.label, None, None, n, ours, None, None))
            continue
        difference = points(ours.mean - row.last.mean) if ours else None
        rows.append((line.label, row.row, row.source, n, ours, row.last, difference))
        if row.remark:
            remarks.setdefault(row.remark, []).append(line.label)
    return Table(
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


def orders_table(experiment: Experiment) -> Table | None:
    """Run by run beside the paper's table of task orders; None where no line has a row there."""
    rows: list[tuple[Cell, ...]] = []
    for line in experiment.lines:
        row = published_of(line)
        for record in line.records if row else ():
            theirs = row.by_seed.get(record.seed) if row else None
            own = record.accuracy[CANDIDATES]
            if theirs and own:
                last = PERCENT * own[-1]
                shown = (f"{last:.2f}", f"{theirs[-1]:.2f}", points(last - theirs[-1]))
                rows.append((line.label, str(record.seed), *shown, record.digest[:8]))
    if not rows:
        return None
    return Table(
        name="orders",
        title=f"Task orders after task {experiment.n_tasks} (%), protocol {CANDIDATES}: {experiment.title}",
        columns=("method", "seed", OURS, "paper", "difference", "stream"),
        rows=tuple(rows),
        notes=("Paper: Qin and Joty (2022), Table 5; its run 1 is the first seed of the order family, and so on.",),
        text_columns=2,
    )


def later_table(experiment: Experiment) -> Table | None:
    """Ours beside later work in the same setting, by all-seen; None where there is none."""
    published = find_later(experiment.lines[0].records[0], ALL_SEEN)
    if not published:
        return None
    tasks = range(experiment.n_tasks)
    rows: list[tuple[Cell, ...]] = [
        (line.label, OURS, *(line.accuracy(ALL_SEEN, k) for k in tasks)) for line in experiment.lines
    ]
    for row in published:
        after = [row.after(k) if k < experiment.n_tasks - 1 else row.after(-1) for k in tasks]
        rows.append((row.row, row.source, *(None if one is None else f"{one:.2f}" for one in after)))
    return Table(
        name="later",
        title=f"Beside later work (%), protocol {ALL_SEEN}: {experiment.title}",
        columns=("method", "whose", *(f"task {k + 1}" for k in tasks)),
        rows=tuple(rows),
        notes=("Later work: as published, with a BERT-base encoder.",),
        text_columns=2,
    )


# -- methods against each other ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Family:
    """The reference against every other line of an experiment, corrected together, and who could not be compared."""

    reference: Line
    comparisons: tuple[Comparison, ...]
    refused: tuple[str, ...]

    def against(self, label: str) -> Comparison | None:
        """The comparison with the line of that label."""
        return next((one for one in self.comparisons if one.second == label), None)


def compare_all(experiment: Experiment, reference: str, protocol: str) -> Family:
    """Test the reference against the other lines; one that was run on other streams is left out and named."""
    found = {line.label: line for line in experiment.lines}
    if reference not in found:
        raise RecordError(unknown_name("line", reference, found))
    first = found.pop(reference)
    refused = {label: said for label, line in found.items() if (said := different_streams(first, line))}
    others = [line for label, line in found.items() if label not in refused]
    return Family(first, compare(first, others, protocol=protocol), tuple(refused.values()))


def comparison_table(experiment: Experiment, reference: str, protocol: str) -> Table:
    """The reference minus each other line after the last task, with both tests, plain and corrected."""
    family = compare_all(experiment, reference, protocol)
    rows: list[tuple[Cell, ...]] = [
        (
            one.second,
            one.n,
            None if one.difference is None else points(PERCENT * one.difference),
            interval(one.interval, signed=True),
            p_value(one.p_t),
            p_value(one.p_t_corrected),
            p_value(one.p_sign),
            p_value(one.p_sign_corrected),
        )
        for one in family.comparisons
    ]
    return Table(
        name=f"comparison-{protocol}",
        title=f"{reference} minus each, after task {experiment.n_tasks} (points), protocol {protocol}: "
        f"{experiment.title}",
        columns=(
            "against",
            "n",
            "difference",
            "95 % interval",
            "p (t)",
            "p (t, Holm)",
            "p (sign-flip)",
            "p (sign-flip, Holm)",
        ),
        rows=tuple(rows),
        notes=(
            "Differences stream by stream, so the runs of both are paired; p is two-sided.",
            *family_notes(family),
            *(f"{one.second}: {one.note}" for one in family.comparisons if one.note),
            *family.refused,
        ),
    )


def family_notes(family: Family) -> list[str]:
    """What the corrected p of a family mean, and what the sign-flip test cannot reach with so few streams."""
    tested = [one for one in family.comparisons if one.p_sign is not None]
    if not tested:
        return [] if family.comparisons else ["Nothing to compare with."]
    n = max(one.n for one in tested)
    least = smallest_sign_flip(n)
    notes = [f"Holm's correction is over {_rows(len(tested))}."]
    if least * len(tested) >= LEVEL:
        notes.append(
            f"With n = {n} the sign-flip test cannot give less than {p_value(least)}, nor less than "
            f"{p_value(min(1.0, least * len(tested)))} after correction, however large the differences are."
        )
    return notes


def _rows(n: int) -> str:
    return "one row" if n == 1 else f"{n} rows"


# -- how numbers are written -------------------------------------------------------------------------------------------


def points(value: float) -> str:
    """A difference in points, with its sign."""
    return f"{value:+.2f}"


def p_value(p: float | None) -> str | None:
    """A p with four decimals, or in powers of ten where it is small."""
    return p if p is None else f"{p:.4f}" if p >= 0.001 else f"{p:.1e}"


def interval(ends: Sequence[float] | None, *, signed: bool = False) -> str | None:
    """Ends of an interval of fractions, in per cent or points."""
    if ends is None:
        return None
    return " to ".join(f"{PERCENT * end:+.2f}" if signed else f"{PERCENT * end:.2f}" for end in ends)
