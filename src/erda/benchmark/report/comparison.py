"""Compare one line with others: paired tests over their common streams, corrected together.

Lines are paired by seed. The same seed is the same stream, so the difficulty of a stream cancels in the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from erda.benchmark.experiments import Experiment, Line
from erda.benchmark.records import Record
from erda.benchmark.statistics import Summary, holm, is_constant, paired_t, relation_interval
from erda.errors import RecordError, unknown_name


@dataclass(frozen=True, slots=True)
class Comparison:
    """`first` minus `second` over their common streams, in fractions.

    An undefined p is None and `note` gives the reason; `p_corrected` is Holm's correction over the table.
    """

    first: str
    second: str
    n: int
    difference: float | None  # mean; None without a common stream
    relation_interval: tuple[float, float] | None = None  # 95 %, by resampling relations; needs counts per relation
    p: float | None = None  # of the paired t-test
    p_corrected: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Comparisons of a reference with the other lines of an experiment, corrected together, and rejected lines."""

    comparisons: tuple[Comparison, ...]
    refused: tuple[str, ...]


def compare_all(experiment: Experiment, reference: str, protocol: str) -> Family:
    """Test the reference against the other lines; reject lines that were run on other streams."""
    found = {line.label: line for line in experiment.lines}
    if reference not in found:
        raise RecordError(unknown_name("line", reference, found))
    first = found.pop(reference)
    refused = {label: said for label, line in found.items() if (said := different_streams(first, line))}
    others = [line for label, line in found.items() if label not in refused]
    return Family(compare_lines(first, others, protocol=protocol), tuple(refused.values()))


def compare_lines(reference: Line, others: Sequence[Line], *, protocol: str) -> tuple[Comparison, ...]:
    """`reference` minus each of `others` on the same streams by final accuracy, corrected as one family."""
    found = [_compare_two(reference, other, protocol) for other in others]
    corrected = holm([one.p for one in found])
    return tuple(replace(one, p_corrected=p) for one, p in zip(found, corrected, strict=True))


def different_streams(first: Line, second: Line) -> str:
    """Reason why two lines cannot be compared; "" if they can."""
    others = {record.seed: record.digest for record in second.records}
    for record in first.records:
        if (digest := others.get(record.seed, record.digest)) != record.digest:
            shown = f"seed {record.seed}, manifests {record.digest[:8] or 'none'}, {digest[:8] or 'none'}"
            return (
                f"Cannot compare '{first.label}' with '{second.label}': they were run on different streams ({shown})."
            )
    return ""


def _compare_two(first: Line, second: Line, protocol: str) -> Comparison:
    ours, theirs = (
        {record.seed: _accuracy(line, record, protocol) for record in line.records} for line in (first, second)
    )
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    summary = Summary.of(differences)
    return Comparison(
        first=first.label,
        second=second.label,
        n=len(differences),
        difference=summary.mean if summary else None,
        relation_interval=_relation_interval(first, second, protocol),
        p=paired_t(differences),
        note=" ".join(_notes(differences, sorted(set(ours) ^ set(theirs)))),
    )


def _relation_interval(first: Line, second: Line, protocol: str) -> tuple[float, float] | None:
    """95 % interval of the difference under resampling of relations; None if counts, streams or relations differ."""
    if {one.seed for one in first.records} != {one.seed for one in second.records}:
        return None
    ours, theirs = first.relation_counts(protocol), second.relation_counts(protocol)
    tests = {name: n for name, (_, n) in ours.items()}
    if not tests or tests != {name: n for name, (_, n) in theirs.items()}:
        return None
    return relation_interval([ours[name][0] - theirs[name][0] for name in tests], list(tests.values()))


def _accuracy(line: Line, record: Record, protocol: str) -> float:
    if (value := record.after("accuracy", protocol, -1)) is None:
        raise RecordError(f"'{line.label}' was not measured by protocol {protocol}: its dataset lists no candidates.")
    return value


def _notes(differences: Sequence[float], alone: Sequence[int]) -> list[str]:
    n = len(differences)
    notes = []
    if n == 0:
        notes.append("No common stream, so nothing to compare: run both on the same --seeds.")
    elif n == 1:
        notes.append("One common stream, and a test needs two or more: run both on more --seeds.")
    elif is_constant(differences):
        notes.append("The difference is the same on every stream: the t-test is not defined.")
    if n and alone:
        notes.append(f"Without seed {', '.join(map(str, alone))}, which only one of the two has.")
    return notes


def p_value(p: float | None) -> str | None:
    """Format p with four decimals, a small p in scientific notation."""
    return p if p is None else f"{p:.4f}" if p >= 0.001 else f"{p:.1e}"
