"""What stands on top of the page: who reached what after the last task, with the paper's number and p."""

from __future__ import annotations

from dataclasses import dataclass

from erda.benchmark.metrics import CANDIDATES
from erda.benchmark.report.comparison import Family, compare_all, p_value, published_of
from erda.benchmark.report.experiments import PERCENT, Line, at_task
from erda.benchmark.report.published import Published
from erda.benchmark.report.sections import Section
from erda.benchmark.report.tables import Summary
from erda.benchmark.report.views import reference_line
from erda.errors import RecordError


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number: the reference by one protocol."""

    protocol: str
    accuracy: Summary
    chance: float  # per cent
    paper: Published | None


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy of a line by one protocol, and p of the reference against it ("" where there is none)."""

    accuracy: Summary | None
    p: str


@dataclass(frozen=True, slots=True)
class Row:
    """One method of the headline."""

    label: str
    is_reference: bool
    scores: tuple[Score, ...]  # by protocol
    paper: Published | None  # by candidates


@dataclass(frozen=True, slots=True)
class Headline:
    """The first section in a few numbers."""

    title: str
    reference: str
    n_tasks: int
    n_streams: int
    protocols: tuple[str, ...]
    tiles: tuple[Tile, ...]
    rows: tuple[Row, ...]

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a number for any row."""
        return any(row.paper for row in self.rows)

    @property
    def has_p(self) -> bool:
        """Whether any pair was tested."""
        return any(score.p for row in self.rows for score in row.scores)


def make_headline(section: Section) -> Headline:
    """The headline of a section; lines that must not be compared have no p."""
    experiment = section.experiment
    reference = reference_line(section)
    families = {protocol: _family(section, protocol) for protocol in experiment.protocols}
    tiles = []
    for protocol in experiment.protocols:
        accuracy = reference.accuracy(protocol, -1)
        chance = _chance(reference, protocol)
        if accuracy and chance:
            tiles.append(
                Tile(protocol, accuracy, chance.mean, published_of(reference) if protocol == CANDIDATES else None)
            )
    rows = tuple(
        Row(
            label=line.label,
            is_reference=line is reference and len(experiment.lines) > 1,
            scores=tuple(
                Score(line.accuracy(protocol, -1), _p(families[protocol], line)) for protocol in experiment.protocols
            ),
            paper=published_of(line),
        )
        for line in experiment.lines
    )
    return Headline(
        title=section.title,
        reference=reference.label,
        n_tasks=experiment.n_tasks,
        n_streams=len(reference.records),
        protocols=experiment.protocols,
        tiles=tuple(tiles),
        rows=rows,
    )


def _family(section: Section, protocol: str) -> Family | None:
    if section.reference is None or len(section.experiment.lines) < 2:
        return None
    try:
        return compare_all(section.experiment, section.reference, protocol)
    except RecordError:  # said in the notes of the section
        return None


def _p(family: Family | None, line: Line) -> str:
    found = family.against(line.label) if family else None
    return (p_value(found.p_t_corrected) or "") if found else ""


def _chance(line: Line, protocol: str) -> Summary | None:
    return line.summary(lambda record: at_task(record.chance[protocol], -1), scale=PERCENT)
